"""The report on leaks as one page for browsers."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.reports import Selection, Style, confidence, html_page, leaks_json, plain, profile
from reachscan.result import LeakScan


def lines(result: LeakScan, selection: Selection, _: Style = plain) -> Iterator[bytes]:
    """Yield the page, as one piece.

    Args:
        result: the scan.
        selection: how much of it to show; single blocks are never listed.
    """
    reasons = {name: confidence.in_words(code) for code, name in confidence.NAMES.items()}
    title = f"{result.recording.target.name}: leaks"
    document = leaks_json.document(result, selection)
    yield html_page.page("leaks", title, document, reasons, profile.graph(result))
