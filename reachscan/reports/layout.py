"""What text reports have in common: what was scanned and how, warnings, hex dumps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from reachscan.naming import private_memory
from reachscan.recording import model
from reachscan.reports import Style
from reachscan.wording import count, duration, printable, size, wrap

if TYPE_CHECKING:
    from reachscan.grouping.groups import Example, Group
    from reachscan.result import LeakScan

_DUMP_ROW = 16
_KINDS_OF_MEMORY = {
    private_memory.ANONYMOUS: "anonymous",
    private_memory.MODULE: "data of modules",
    private_memory.STACK: "stacks",
    private_memory.FILE: "mapped files",
}


def paragraph(text: str, what: str, style: Style) -> Iterator[str]:
    """Yield a text, if there is any, in lines that are no wider than they may be."""
    if text:
        yield from (style(line, what) for line in wrap(text, style.width, "  "))


def row(columns: str, text: str, what: str, style: Style) -> Iterator[str]:
    """Yield a text behind the columns of a table; where it is too long, it goes on below itself."""
    for line in wrap(text, style.width - len(columns)):
        yield columns + style(line, what)
        columns = " " * len(columns)


def who(recording: model.Recording) -> str:
    """Return which process it was; a dump does not tell its id."""
    name, pid = printable(recording.target.name), recording.target.pid
    return f"{name} (pid {pid})" if pid else name


def allocators(recording: model.Recording) -> str:
    """Return which allocators it uses, in brackets."""
    names = ", ".join(dict.fromkeys(heap.allocator for heap in recording.heaps))
    return f" ({printable(names)})" if names else ""


def how(recording: model.Recording) -> str:
    """Return how the process was scanned and what that took."""
    snapshot = recording.snapshot
    seconds = sum(ns for _, ns in snapshot.phases) / 1e9
    reason = f": {snapshot.reason}" if snapshot.reason else ""
    paused = f"paused {duration(snapshot.pause_ns / 1e9)}" if snapshot.pause_ns else "not paused"
    if recording.confirmation:
        pauses = recording.confirmation.pauses_ns
        paused = f"paused {len(pauses)} times, for {duration(max(pauses) / 1e9)} at most"
    return f"{paused}, scanned in {duration(seconds)} ({printable(snapshot.method + reason)})"


def confirmation(recording: model.Recording) -> str:
    """Return how often the process was scanned, and what was not lost each time; or nothing."""
    confirmed = recording.confirmation
    if confirmed is None:
        return ""
    left_out = [
        f"{count(blocks, 'block')} ({size(amount)}) {why}"
        for why, (blocks, amount) in (
            ("gone again", confirmed.vanished),
            ("too recent to be sure of", confirmed.recent),
        )
        if blocks
    ]
    return (
        f"only what was lost in each of {len(confirmed.pauses_ns)} scans, "
        f"{duration(confirmed.every_ns / 1e9)} apart"
        + f"; left out: {', '.join(left_out)}"
        * bool(left_out)
    )


def collectible(recording: model.Recording) -> str:
    """Return what waits for Python's collector, or nothing."""
    waiting = recording.collectible
    if waiting is None or not waiting.allocations:
        return ""
    blocks = f"{count(waiting.allocations, 'block')} ({size(waiting.bytes)})"
    return f"no leaks: {blocks} of Python objects in cycles, which its collector will free"


def rest_of_memory(result: LeakScan) -> str:
    """Return what the private memory is besides heap, if that is most of it; or nothing."""
    memory = result.memory
    if memory is None or memory.heap * 2 >= memory.total:
        return ""
    kinds = [
        f"{size(memory.rest[kind])} {what}"
        for kind, what in _KINDS_OF_MEMORY.items()
        if memory.rest[kind]
    ]
    largest = [f"{size(part.bytes)} at {part.start:#x}" for part in memory.largest]
    return (
        "the rest of the memory was searched for pointers, not for leaks: "
        f"{', '.join(kinds)} (largest: {', '.join(largest)})"
    )


def example(example: Example, contents: int, style: Style) -> Iterator[str]:
    """Yield the address of a block, and its first bytes as far as they are wanted."""
    if not example.address:  # a dump does not tell
        return
    shown = example.contents[:contents]
    yield style(f"      for example at {example.address:#x}", "dim")
    for at in range(0, len(shown), _DUMP_ROW):
        part = shown[at : at + _DUMP_ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield style(f"      {at:04x}  {part.hex(' '):<47}  |{text}|", "dim")


def title(group: Group) -> str:
    """Return what the blocks of a group are."""
    if group.is_object:
        return f"reference-count leak of {printable(group.type or 'Python objects')}"
    words = ": ".join(filter(None, dict.fromkeys((group.shape, group.signature))))
    return printable(group.type or words or "blocks that nothing more is known of")


def key(group: Group, style: Style) -> Iterator[str]:
    """Yield what `diff`, `watch` and suppressions call a group, if it is not called so anyway."""
    if group.key != group.type:
        yield from row("      key ", printable(group.key), "dim", style)


def candidates(group: Group) -> str:
    """Return what structs the blocks of a group could be; empty if none is known."""
    return f"perhaps {printable(', '.join(group.candidates))}" if group.candidates else ""


def warnings(warnings: Iterable[model.Warning], style: Style) -> Iterator[str]:
    """Yield what the reader must know, each after an empty line."""
    for warning in warnings:
        yield ""
        text = printable(f"warning: {warning.message} ({warning.code})")
        yield from paragraph(text, "warning", style)
