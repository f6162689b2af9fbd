"""The report on the live heap as one page for browsers."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.reports import Selection, Style, heap_json, html_page, plain, profile
from reachscan.result import HeapScan


def lines(result: HeapScan, selection: Selection, _: Style = plain) -> Iterator[bytes]:
    """Yield the page, as one piece."""
    title = f"{result.recording.target.name}: live heap"
    document = heap_json.document(result, selection)
    yield html_page.page("heap", title, document, profile=profile.graph(result))
