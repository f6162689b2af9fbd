"""The report on leaks as one page for browsers."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.reports import Selection, confidence, html_page, leaks_json
from reachscan.result import ScanResult


def lines(result: ScanResult, selection: Selection) -> Iterator[str]:
    """Yield the page, as one piece without a line end.

    Args:
        result: what to report.
        selection: how much of it; single blocks are never listed.
    """
    reasons = {name: confidence.in_words(code) for code, name in confidence.NAMES.items()}
    title = f"{result.recording.target.name}: leaks"
    return html_page.lines("leaks", title, leaks_json.document(result, selection), reasons)
