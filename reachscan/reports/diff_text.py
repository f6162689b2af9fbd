"""The comparison of two scans for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from reachscan.history.census import LEAKS, Census
from reachscan.history.comparison import WORSE, Change, Comparison, What
from reachscan.judgement import NOTHING, Tally
from reachscan.reports import Selection, Style, layout, plain
from reachscan.wording import count, printable, size


def lines(comparison: Comparison, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield the report line by line, without line ends; changes are sorted by growth."""
    limit = selection.limit
    yield from layout.paragraph(
        _headline(comparison), "headline" if comparison.grew else "good", style
    )
    for name, census in (("old", comparison.old), ("new", comparison.new)):
        yield from layout.row(f"  {name}  ", printable(_source(census)), "dim", style)
    if comparison.changes:
        yield ""
        yield style(_row("bytes", "blocks", "") + "key of the kind", "dim")
        for change in comparison.changes[:limit]:
            yield from change_rows(change, style)
        yield from _sums(comparison, limit, style)
    yield from layout.warnings(comparison.warnings, style)


def _headline(comparison: Comparison) -> str:
    by, new = comparison.by, comparison.new
    same = ", which differ in kind" if comparison.changes else ", as before"
    name = printable(Path(new.program).name)
    return f"{name}: {amount(new.total, by, _state(new))}" + same * (by == NOTHING)


def amount(total: Tally, by: Tally, state: str = "leaked") -> str:
    """Return how much is leaked, and the increase.

    Args:
        total: the amount now.
        by: the increase.
        state: a word to use instead of "leaked".
    """
    blocks, amount = (
        f" ({signed(number, shown)})" * bool(number)
        for number, shown in ((by.allocations, str), (by.bytes, size))
    )
    return f"{count(total.allocations, f'{state} block')}{blocks}, {size(total.bytes)}{amount}"


def _source(census: Census) -> str:
    total = census.total
    return (
        f"{census.source}: pid {census.pid} at {census.started}, "
        f"{count(total.allocations, f'{_state(census)} block')}, {size(total.bytes)}"
    )


def _state(census: Census) -> str:
    return "leaked" if census.about == LEAKS else "live"


def change_rows(change: Change, style: Style) -> Iterator[str]:
    """Yield one change as rows of a table: the increase, the kind, the amounts before and now."""
    how = "headline" if change.what in WORSE else "dim"
    columns = _columns(change.by, change.what.value)
    yield from layout.row(columns, printable(change.key), how, style)
    if change.what in (What.GROWN, What.SHRUNK):
        text = f"{_amount(change.old)} before, {_amount(change.new)} now"
        yield from layout.row(" " * len(columns), text, "dim", style)


def _sums(comparison: Comparison, limit: int, style: Style) -> Iterator[str]:
    hidden = comparison.changes[limit:]
    if hidden:
        by = Tally(sum(c.by.allocations for c in hidden), sum(c.by.bytes for c in hidden))
        more = f"{count(len(hidden), 'more kind')}, shown by --limit {len(comparison.changes)}"
        yield from layout.row(_columns(by), more, "plain", style)
    yield style(_row("-" * 10, "-" * 8, "").rstrip(), "dim")
    others = f", {count(comparison.unchanged, 'kind')} unchanged" if comparison.unchanged else ""
    if comparison.unclear:
        others += f", {count(comparison.unclear, 'kind')} unclear"
    yield from layout.row(_columns(comparison.by), f"in all{others}", "plain", style)


def _columns(by: Tally, what: str = "") -> str:
    return _row(signed(by.bytes, size), signed(by.allocations, str), what)


def _row(amount: str, blocks: str, what: str) -> str:
    return f"{amount:>10}  {blocks:>8}  {what:<7}  "


def signed(number: int, shown: Callable[[int], str]) -> str:
    """Return a difference with its sign."""
    return f"{'-' if number < 0 else '+'}{shown(abs(number))}" if number else "0"


def _amount(tally: Tally) -> str:
    return f"{count(tally.allocations, 'block')}, {size(tally.bytes)}"
