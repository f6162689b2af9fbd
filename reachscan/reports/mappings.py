"""Recorded mappings in reports. They are listed, but never called leaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from reachscan.grouping.mappings import LiveMapping, live
from reachscan.recording import model
from reachscan.reports import Selection, Style, layout, stacks
from reachscan.wording import count, number, size


def rows(recording: model.Recording, table: stacks.Table) -> Iterator[dict[str, Any]]:
    """Yield each mapping's part of a JSON document."""
    for mapping in live(recording):
        yield {
            "address": f"{mapping.start:#x}",
            "size": mapping.bytes,
            "kind": "stack" if mapping.is_stack else "mmap",
            "thread_ended": mapping.thread_ended,
            "stack": table.index(mapping.stack),
            "tid": mapping.tid,
            "age_us": mapping.age_us,
        }


def lines(recording: model.Recording, selection: Selection, style: Style) -> Iterator[str]:
    """Yield text about mappings, by who created them; nothing if they are not recorded."""
    kinds: defaultdict[tuple[str, int], list[LiveMapping]] = defaultdict(list)
    for mapping in live(recording):
        kinds[_what(mapping), mapping.stack].append(mapping)
    if not kinds:
        return
    yield ""
    yield style(f"{_columns('bytes', 'mappings')}recorded mappings, which are no leaks", "dim")
    order = sorted(kinds.items(), key=lambda kind: -sum(m.bytes for m in kind[1]))
    for (what, stack), members in order[: selection.limit]:
        columns = _columns(size(sum(m.bytes for m in members)), number(len(members)))
        yield from layout.row(columns, what, "headline", style)
        yield from stacks.stack(recording, stack, style)
    hidden = len(order) - selection.limit
    if hidden > 0:
        more = f"{count(hidden, 'more kind')}, shown by --limit {len(order)}"
        yield from layout.row(_columns("", ""), more, "plain", style)


def _columns(amount: str, mappings: str) -> str:
    return f"{amount:>10}  {mappings:>8}  "


def _what(mapping: LiveMapping) -> str:
    if not mapping.is_stack:
        return "mapped by"
    if mapping.thread_ended:
        return "stack of a thread that has ended and was not joined, created by"
    return "stack of a thread, created by"
