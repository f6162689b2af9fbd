"""The report on the live heap for people."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.grouping.groups import Group
from reachscan.recording.zip_equal import zip_equal
from reachscan.reports import Selection, Style, layout, plain, stacks
from reachscan.reports.heap import Arena, rows
from reachscan.result import HeapScan
from reachscan.wording import count, exact_size, number, size

_ARENAS = 3
"""Maximum number of arenas to show for each kind."""


def lines(result: HeapScan, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield the report line by line, without line ends."""
    recording, totals = result.recording, result.recording.totals
    found = rows(result, selection.limit)
    headline = (
        f"{layout.who(recording)}: {count(totals.allocations, 'live block')}, "
        f"{size(totals.bytes)}{layout.allocators(recording)}"
    )
    yield from layout.paragraph(headline, "headline", style)
    yield from layout.paragraph(layout.how(recording), "dim", style)
    yield from layout.paragraph(stacks.recorded(recording), "dim", style)
    yield ""
    yield style(_columns("bytes", "blocks", "size") + "what is allocated", "dim")
    for group, arenas in found:
        yield from _kind(group, arenas, selection, style)
        yield from stacks.lines(recording, group, style)
        yield from layout.example(group.example, selection.contents, style)
    folded = result.folding
    hidden = len(folded.example) - len(found)
    if hidden:
        rest = slice(len(found), None)
        columns = _columns(
            size(int(folded.bytes[rest].sum())), number(int(folded.allocations[rest].sum()))
        )
        more = f"{count(hidden, 'more kind')}, shown by --limit {len(found) + hidden}"
        yield from layout.row(columns, more, "plain", style)
    yield style(_columns("-" * 10, "-" * 8).rstrip(), "dim")
    kinds = count(len(folded.example), "kind")
    yield f"{_columns(size(totals.bytes), number(totals.allocations))}in all, {kinds}"
    yield from layout.warnings(result.warnings, style)


def _columns(amount: str, blocks: str, each: str = "") -> str:
    return f"{amount:>10}  {blocks:>8}  {each:>8}  "


def _kind(group: Group, arenas: list[Arena], selection: Selection, style: Style) -> Iterator[str]:
    each = exact_size(group.size) if len(group.sizes) == 1 else "varies"
    columns = _columns(size(group.bytes), number(group.allocations), each)
    yield from layout.row(columns, layout.title(group), "headline", style)
    details = [layout.candidates(group)]
    if [arena.arena for arena in arenas] != [0]:
        details.append(_arenas_text(arenas))
    for detail in filter(None, details):
        yield from layout.row(" " * len(columns), detail, "dim", style)
    yield from layout.key(group, style)


def _arenas_text(arenas: list[Arena]) -> str:
    names = [f"arena {arena.arena}" if arena.arena else "the main arena" for arena in arenas]
    shown = [
        f"{number(arena.allocations)} in {name}"
        for arena, name in zip_equal(arenas[:_ARENAS], names[:_ARENAS])
    ]
    hidden = len(arenas) - len(shown)
    return ", ".join([*shown, *([f"the rest in {count(hidden, 'more arena')}"] if hidden else [])])
