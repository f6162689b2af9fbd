"""Folded stacks for flame graph tools: one line for each, outermost function first."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.reports import Selection, Style, plain
from reachscan.reports.profile import Scan, by_path


def lines(scan: Scan, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield `main;open_session;new_buffer 4096`, sorted by weight."""
    for path, weight in by_path(scan, selection):
        yield f"{';'.join(path)} {weight}"
