"""The comparison of two scans as one page for browsers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reachscan.history.comparison import Comparison
from reachscan.reports import Selection, Style, diff_json, html_page, plain


def lines(comparison: Comparison, selection: Selection, _: Style = plain) -> Iterator[bytes]:
    """Yield the page, as one piece."""
    title = f"{Path(comparison.new.program).name}: what changed"
    yield html_page.page("diff", title, diff_json.document(comparison, selection.limit))
