"""The answer to `heap`: what live blocks there are, by kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from reachscan.grouping.groups import Group
from reachscan.recording import model
from reachscan.reports import Selection, Style, layout, leaks_json, leaks_logfmt, plain
from reachscan.result import ScanResult
from reachscan.wording import count, exact_size, number, size

FORMAT = "reachscan-heap"
VERSION = 1
_ARENAS = 3
"""Arenas that are told of each kind in text."""


class Arena(NamedTuple):
    """How much of a kind lies in one arena (0 is the main one; usable bytes)."""

    arena: int
    allocations: int
    bytes: int


def lines(
    format_: str, result: ScanResult, kinds: model.Kinds, selection: Selection, style: Style = plain
) -> Iterator[str]:
    """Yield the answer line by line, without line ends.

    Args:
        format_: one of `reports.FORMATS`.
        result: what was found out.
        kinds: the live blocks.
        selection: how much is told.
        style: what text looks like.
    """
    shown = result.groups(selection.limit)
    arenas = [_arenas(result, kinds, i) for i in range(len(shown))]
    rows = list(zip(shown, arenas, strict=True))
    if format_ == "json":
        yield json.dumps(_document(result, rows, selection), indent=2)
    elif format_ == "html":
        from reachscan.reports import html_page

        title = f"{result.recording.target.name}: live heap"
        yield from html_page.lines("heap", title, _document(result, rows, selection))
    elif format_ == "logfmt":
        yield from _logfmt(result, rows, selection)
    else:
        yield from _text(result, rows, selection, style)


Rows = list[tuple[Group, list[Arena]]]


def _arenas(result: ScanResult, kinds: model.Kinds, group: int) -> list[Arena]:
    """Return the arenas that the blocks of a group are in, the largest share first."""
    members = result.folding.group_of_row == group
    numbers, where = np.unique(kinds.arena[members], return_inverse=True)
    sums = [
        np.bincount(where.reshape(-1), column[members].astype(np.float64)).astype(np.int64)
        for column in (kinds.count, kinds.bytes)
    ]
    found = [
        Arena(*row) for row in zip(numbers.tolist(), *map(np.ndarray.tolist, sums), strict=True)
    ]
    return sorted(found, key=lambda arena: (-arena.bytes, arena.arena))


def _document(result: ScanResult, rows: Rows, selection: Selection) -> dict[str, Any]:
    totals = result.recording.totals
    return {
        "format": FORMAT,
        "version": VERSION,
        **leaks_json.facts(result.recording),
        "heap": {"allocations": totals.allocations, "bytes": totals.bytes},
        "groups_total": len(result.folding.example),
        "groups": [_group(group, arenas, selection.contents) for group, arenas in rows],
        **leaks_json.caveats(result.recording),
    }


def _group(group: Group, arenas: list[Arena], contents: int) -> dict[str, Any]:
    return {
        "allocations": group.allocations,
        "bytes": group.bytes,
        "size": group.size,
        "type": group.type,
        "shape": group.shape,
        "signature": group.signature,
        "candidates": list(group.candidates),
        "key": group.key,
        "arenas": [arena._asdict() for arena in arenas],
        "example": leaks_json.example(group.example, contents),
        "sizes": [row._asdict() for row in group.sizes],
    }


def _logfmt(result: ScanResult, rows: Rows, selection: Selection) -> Iterator[str]:
    recording, totals = result.recording, result.recording.totals
    who = leaks_logfmt.who(recording.target)
    yield leaks_logfmt.line(
        event="heap",
        **who,
        method=recording.snapshot.method,
        pause_us=recording.snapshot.pause_ns // 1000,
        allocations=totals.allocations,
        bytes=totals.bytes,
        groups=len(result.folding.example),
        groups_shown=len(rows),
        complete=leaks_json.is_complete(recording),
        warnings=",".join(warning.code for warning in recording.warnings) or None,
    )
    for group, arenas in rows:
        yield leaks_logfmt.line(
            event="kind",
            **who,
            allocations=group.allocations,
            bytes=group.bytes,
            size=group.size,
            type=group.type,
            shape=group.shape,
            signature=group.signature,
            key=group.key,
            arenas=",".join(str(arena.arena) for arena in arenas),
            example=f"{group.example.address:#x}",
            contents=group.example.contents[: selection.contents].hex() or None,
        )


def _text(result: ScanResult, rows: Rows, selection: Selection, style: Style) -> Iterator[str]:
    recording, totals = result.recording, result.recording.totals
    headline = (
        f"{layout.who(recording)}: {count(totals.allocations, 'live block')}, "
        f"{size(totals.bytes)}{layout.allocators(recording)}"
    )
    yield from layout.paragraph(headline, "headline", style)
    yield from layout.paragraph(layout.how(recording), "dim", style)
    yield ""
    yield style(_columns("bytes", "blocks", "size") + "what is allocated", "dim")
    for group, arenas in rows:
        yield from _kind(group, arenas, selection, style)
    folded = result.folding
    hidden = len(folded.example) - len(rows)
    if hidden:
        rest = slice(len(rows), None)
        columns = _columns(
            size(int(folded.bytes[rest].sum())), number(int(folded.allocations[rest].sum()))
        )
        more = f"{count(hidden, 'more kind')}, shown by --limit {len(rows) + hidden}"
        yield from layout.row(columns, more, "plain", style)
    yield style(_columns("-" * 10, "-" * 8).rstrip(), "dim")
    kinds = count(len(folded.example), "kind")
    yield f"{_columns(size(totals.bytes), number(totals.allocations))}in all, {kinds}"
    yield from layout.warnings(recording.warnings, style)


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
    yield from layout.example(group.example, selection.contents, style)


def _arenas_text(arenas: list[Arena]) -> str:
    names = [f"arena {arena.arena}" if arena.arena else "the main arena" for arena in arenas]
    shown = [
        f"{number(arena.allocations)} in {name}"
        for arena, name in zip(arenas[:_ARENAS], names[:_ARENAS], strict=True)
    ]
    hidden = len(arenas) - len(shown)
    return ", ".join([*shown, *([f"the rest in {count(hidden, 'more arena')}"] if hidden else [])])
