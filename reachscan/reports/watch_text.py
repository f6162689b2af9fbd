"""The output of a watch for people: a line per scan, and what grew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from reachscan.history.comparison import WORSE, Comparison
from reachscan.history.watching import Ended, Event, Failed, Scanned, Why
from reachscan.judgement import NOTHING
from reachscan.reports import Selection, Style, plain
from reachscan.reports.diff_text import amount, change_rows
from reachscan.reports.layout import paragraph
from reachscan.wording import count, duration, instant, printable

_ENDS = {
    Why.COUNTED: "done",
    Why.EXITED: "the process has exited",
    Why.REPLACED: "the process has exited, and another one has its id now",
    Why.INTERRUPTED: "interrupted",
}


def lines(event: Event, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield an event as lines for people, with the kinds that grew most."""
    when = instant(event.now)[:19] + "Z"
    if isinstance(event, Failed):
        why = printable(event.error.sentence)
        yield from paragraph(f"{when}  not scanned: {why}", "warning", style)
        return
    what = _scanned(event) if isinstance(event, Scanned) else _ended(event)
    worse = event.change is not None and event.change.grew
    yield from paragraph(f"{when}  {what}", "headline" if worse else "plain", style)
    yield from _grown(event.change, selection.limit, style)


def _scanned(event: Scanned) -> str:
    by = event.change.by if event.change else NOTHING
    program = Path(event.found.program).name
    parts = [f"now it is {printable(program)}: "] * event.is_another_program
    parts.append(amount(event.found.total, by))
    if event.suppressed.allocations:
        parts.append(f", {event.suppressed.allocations} suppressed")
    return "".join(parts) + f"; paused {duration(event.pause_ns / 1e9)}"


def _ended(event: Ended) -> str:
    failed = f" and {event.failures} that failed" * bool(event.failures)
    scans = f"{count(event.scans, 'scan')}{failed} in {duration(event.seconds)}"
    summary = f"{_ENDS[event.why]}: {scans}"
    if event.change is None:
        return summary
    by = event.change.by
    total = amount(event.change.new.total, by)
    return f"{summary}; {total}, " + ("leaks have grown" if event.change.grew else "nothing grew")


def _grown(change: Comparison | None, limit: int, style: Style) -> Iterator[str]:
    worse = [c for c in change.changes if c.what in WORSE] if change else []
    for one in worse[:limit]:
        yield from change_rows(one, style)
    if len(worse) > limit:
        more = f"{count(len(worse) - limit, 'more kind')} that grew, shown by --limit {len(worse)}"
        yield style(f"{'':12}{more}", "dim")
