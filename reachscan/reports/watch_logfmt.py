"""The output of a watch for logs: a line per event, and one for each kind that grew."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.history.comparison import WORSE
from reachscan.history.watching import Ended, Event, Failed, Scanned
from reachscan.reports import Selection, Style, plain
from reachscan.reports.diff_logfmt import change_line
from reachscan.reports.logfmt import line
from reachscan.wording import instant


def lines(event: Event, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield an event as lines of key=value, with the kinds that grew most."""
    when = instant(event.now)
    if isinstance(event, Failed):
        yield line(event="failure", time=when, pid=event.pid, error=event.error.sentence)
    elif isinstance(event, Ended):
        yield _end_line(event, when)
    else:
        yield _scan_line(event, when)
        worse = [c for c in event.change.changes if c.what in WORSE] if event.change else []
        yield from (change_line(change, event.pid) for change in worse[: selection.limit])


def _scan_line(event: Scanned, when: str) -> str:
    by = event.change.by if event.change else None
    return line(
        event="scan",
        time=when,
        pid=event.pid,
        program=event.found.program,
        pause_us=event.pause_ns // 1000,
        leaks=event.found.total.allocations,
        leaked_bytes=event.found.total.bytes,
        by=by.allocations if by else None,
        bytes_by=by.bytes if by else None,
        suppressed=event.suppressed.allocations,
        suppressed_bytes=event.suppressed.bytes,
        grew=event.change.grew if event.change else None,
    )


def _end_line(event: Ended, when: str) -> str:
    change = event.change
    return line(
        event="end",
        time=when,
        pid=event.pid,
        why=event.why.value,
        scans=event.scans,
        failures=event.failures,
        seconds=round(event.seconds),
        leaks=change.new.total.allocations if change else None,
        leaked_bytes=change.new.total.bytes if change else None,
        by=change.by.allocations if change else None,
        bytes_by=change.by.bytes if change else None,
        grew=change.grew if change else None,
    )
