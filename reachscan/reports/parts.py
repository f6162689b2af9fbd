"""What reports for people have in common: who was looked at and how, warnings, bytes."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan import model
from reachscan.reports import Style
from reachscan.reports.wording import duration, printable, wrap

WIDTH = 100
_DUMP_ROW = 16


def paragraph(text: str, what: str, style: Style) -> Iterator[str]:
    """Yield a text, if there is any, in lines of at most `WIDTH` columns."""
    if text:
        yield from (style(line, what) for line in wrap(text, WIDTH, "  "))


def who(recording: model.Recording) -> str:
    """Return which process it was."""
    return f"{printable(recording.target.name)} (pid {recording.target.pid})"


def allocators(recording: model.Recording) -> str:
    """Return which allocators it uses, in brackets."""
    names = ", ".join(dict.fromkeys(heap.allocator for heap in recording.heaps))
    return f" ({printable(names)})" if names else ""


def how(recording: model.Recording) -> str:
    """Return how the process was scanned and what that took."""
    snapshot = recording.snapshot
    seconds = sum(ns for _, ns in snapshot.phases) / 1e9
    reason = f": {snapshot.reason}" if snapshot.reason else ""
    return (
        f"paused {duration(snapshot.pause_ns / 1e9)}, scanned in {duration(seconds)} "
        f"({printable(snapshot.method + reason)})"
    )


def example(example: model.Example, contents: int, style: Style) -> Iterator[str]:
    """Yield the address of a block, and its first bytes as far as they are wanted."""
    shown = example.contents[:contents]
    yield style(f"      for example at {example.address:#x}", "dim")
    for at in range(0, len(shown), _DUMP_ROW):
        row = shown[at : at + _DUMP_ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield style(f"        {at:08x}  {row.hex(' '):<47}  |{text}|", "dim")


def warnings(recording: model.Recording, style: Style) -> Iterator[str]:
    """Yield what the reader must know, each after an empty line."""
    for warning in recording.warnings:
        yield ""
        text = printable(f"warning: {warning.message} ({warning.code})")
        yield from paragraph(text, "warning", style)
