"""Common parts of text reports: what was scanned and how, warnings, hex dumps."""

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
    """Yield a text, unless it is empty, in lines of limited width."""
    if text:
        yield from (style(line, what) for line in wrap(text, style.width, "  "))


def row(columns: str, text: str, what: str, style: Style) -> Iterator[str]:
    """Yield a text behind the columns of a table; a long one continues below itself."""
    for line in wrap(text, style.width - len(columns)):
        yield columns + style(line, what)
        columns = " " * len(columns)


def who(recording: model.Recording) -> str:
    """Return the name of the process; a dump does not contain its id."""
    name, pid = printable(recording.target.name), recording.target.pid
    return f"{name} (pid {pid})" if pid else name


def allocators(recording: model.Recording) -> str:
    """Return the allocators of the process, in brackets."""
    names = ", ".join(dict.fromkeys(heap.allocator for heap in recording.heaps))
    return f" ({printable(names)})" if names else ""


def how(recording: model.Recording) -> str:
    """Return how the process was scanned, and how long that took."""
    snapshot = recording.snapshot
    seconds = sum(ns for _, ns in snapshot.phases) / 1e9
    reason = f": {snapshot.reason}" if snapshot.reason else ""
    paused = f"paused {duration(snapshot.pause_ns / 1e9)}" if snapshot.pause_ns else "not paused"
    repeated = recording.confirmation or recording.moments
    if repeated and len(repeated.pauses_ns) > 1:
        pauses = repeated.pauses_ns
        paused = f"paused {len(pauses)} times, for {duration(max(pauses) / 1e9)} at most"
    return f"{paused}, scanned in {duration(seconds)} ({printable(snapshot.method + reason)})"


def confirmation(recording: model.Recording) -> str:
    """Return how often the process was scanned, and what only some scans found; or nothing."""
    confirmed = recording.confirmation
    if confirmed is None:
        return _moments(recording.moments) if recording.moments else ""
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


def _moments(joined: model.Moments) -> str:
    scans, apart = len(joined.pauses_ns), duration(joined.every_ns / 1e9)
    found = "one scan was enough"
    if scans > 1:
        found = f"what was lost in any of {scans} scans, {apart} apart"
    amounts = [
        f"{count(blocks, 'block')} ({size(amount)}) {what}"
        for what, (blocks, amount) in (
            ("that words hide from the last one", joined.hidden),
            (
                "left out or in doubt, as an earlier scan was wrong about their use",
                joined.withdrawn,
            ),
        )
        if blocks
    ]
    rested = "the process did nothing more, so further scans would find the same"
    return "; ".join([found, *amounts, *[rested] * joined.rested])


def collectible(recording: model.Recording) -> str:
    """Return the amount that waits for Python's collector, or nothing."""
    waiting = recording.collectible
    if waiting is None or not waiting.allocations:
        return ""
    blocks = f"{count(waiting.allocations, 'block')} ({size(waiting.bytes)})"
    return f"no leaks: {blocks} of Python objects in cycles, which its collector will free"


def memory_not_listed(result: LeakScan) -> str:
    """Return what private memory consists of, if most of it is not heap; or nothing."""
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
    """Yield the address of a block, and the requested number of its first bytes."""
    if not example.address:  # not in a dump
        return
    shown = example.contents[:contents]
    yield style(f"      for example at {example.address:#x}", "dim")
    for at in range(0, len(shown), _DUMP_ROW):
        part = shown[at : at + _DUMP_ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield style(f"      {at:04x}  {part.hex(' '):<47}  |{text}|", "dim")


def title(group: Group) -> str:
    """Return the description of a group's blocks."""
    if group.is_object:
        return f"reference-count leak of {printable(group.type or 'Python objects')}"
    words = ": ".join(filter(None, dict.fromkeys((group.shape, group.signature))))
    return printable(group.type or words or "blocks that nothing more is known of")


def key(group: Group, style: Style) -> Iterator[str]:
    """Yield a group's name in `diff`, `watch` and suppressions, if it has another one."""
    if group.key != group.type:
        yield from row("      key ", printable(group.key), "dim", style)


def candidates(group: Group) -> str:
    """Return the structs that a group's blocks could be; empty if none is known."""
    return f"perhaps {printable(', '.join(group.candidates))}" if group.candidates else ""


def warnings(warnings: Iterable[model.Warning], style: Style) -> Iterator[str]:
    """Yield the warnings, each after an empty line."""
    for warning in warnings:
        yield ""
        text = printable(f"warning: {warning.message} ({warning.code})")
        yield from paragraph(text, "warning", style)
