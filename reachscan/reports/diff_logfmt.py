"""The comparison of two scans for logs."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.history.comparison import Change, Comparison
from reachscan.reports import Selection, Style, plain
from reachscan.reports.logfmt import codes, line


def lines(comparison: Comparison, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield a summary line, and a line for each change, by growth."""
    old, new = comparison.old, comparison.new
    shown = comparison.changes[: selection.limit]
    yield line(
        event="diff",
        old=old.source,
        new=new.source,
        pid=new.pid,
        program=new.program,
        about=new.about,
        allocations=new.total.allocations,
        bytes=new.total.bytes,
        by=comparison.by.allocations,
        bytes_by=comparison.by.bytes,
        grew=comparison.grew,
        **{f"kinds_{what.value}": number for what, number in comparison.numbers().items()},
        kinds_unchanged=comparison.unchanged,
        kinds_unclear=comparison.unclear,
        shown=len(shown),
        warnings=codes(comparison.warnings),
    )
    for change in shown:
        yield change_line(change, new.pid)


def change_line(change: Change, pid: int) -> str:
    """Return one change as a line of key=value."""
    return line(
        event="change",
        pid=pid,
        what=change.what.value,
        key=change.key,
        by=change.by.allocations,
        bytes_by=change.by.bytes,
        allocations=change.new.allocations,
        bytes=change.new.bytes,
    )
