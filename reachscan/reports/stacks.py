"""Who allocated blocks, in reports: stacks, threads, ages, and how they were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from reachscan.recording import model
from reachscan.recording.origins import (
    NO_STACK,
    NOT_RECORDED,
    STACKS,
    STOPPED,
    WAYS_IN,
    Frame,
    Origins,
    Recorder,
)
from reachscan.reports import Style, layout
from reachscan.wording import count, duration, instant, printable

if TYPE_CHECKING:
    from reachscan.grouping.groups import Group, Origin

_FRAMES = 24
"""Maximum number of frames of a stack in text."""

_THREADS = 3
"""Maximum number of threads of a group in text."""


def frames_of(recording: model.Recording, stack: int) -> list[Frame]:
    """Return the frames of a stack, innermost first."""
    return [frame for frames in calls_of(recording, stack) for frame in frames]


def calls_of(recording: model.Recording, stack: int) -> list[tuple[Frame, ...]]:
    """Return the calls of a stack, innermost first; each is a function and those inlined in it."""
    if stack == NO_STACK or recording.stacks is None:
        return []
    known = recording.frames
    return [known.get(call) or (Frame(call.pc),) for call in recording.stacks.calls(stack)]


class Table:
    """The stacks that a document refers to, numbered in the order of first use."""

    def __init__(self, recording: model.Recording) -> None:
        self._recording = recording
        self._index: dict[int, int] = {}

    def index(self, stack: int) -> int | None:
        """Return the number of a stack in the document; None for no stack."""
        return None if stack == NO_STACK else self._index.setdefault(stack, len(self._index))

    def rows(self) -> list[list[dict[str, Any]]]:
        """Return all stacks used so far."""
        return [
            [
                {**frame._asdict(), "pc": hex(frame.pc)}
                for frame in frames_of(self._recording, stack)
            ]
            for stack in self._index
        ]


def group(origin: Origin | None, table: Table) -> dict[str, Any]:
    """Return the part of a document that says who allocated a group."""
    if origin is None:
        return {"stack": None}
    known: dict[str, Any] = {
        "stack": table.index(origin.stack),
        "threads": [thread._asdict() for thread in origin.threads],
        "age_us": {"oldest": origin.oldest_us, "newest": origin.newest_us},
    }
    if origin.oldest_us is None:
        known["age_us"] = None
    return known | ({"estimated": origin.estimated._asdict()} if origin.estimated else {})


def blocks(recording: model.Recording, table: Table) -> Iterator[dict[str, Any]]:
    """Yield the part of a document that says who allocated each leak, in stream order."""
    origins = recording.origins
    if origins is None:
        return
    for i in range(len(origins.stack)):
        yield block(recording, origins, i, table)


def block(recording: model.Recording, origins: Origins, i: int, table: Table) -> dict[str, Any]:
    """Return the part of a document that says who allocated a block."""
    recorder, number = recording.recorder, int(origins.thread[i])
    if number == NOT_RECORDED:
        return {"stack": None, "tid": None, "age_us": None}
    thread = recording.recorded_threads.get(number)
    return {
        "stack": table.index(int(origins.stack[i])),
        "tid": thread.tid if thread else None,
        "age_us": recorder.age_us(int(origins.newest_ms[i])) if recorder else None,
    }


def of_block(recording: model.Recording, start: int) -> tuple[Origins, int] | None:
    """Return the row with the origin of the block at an address; None if there is none."""
    import numpy as np  # reports without stacks do not need it

    kinds = recording.kinds.example if recording.kinds else recording.leaks.address[:0]
    for origins, of in (
        (recording.origins, recording.leaks.address),
        (recording.kind_origins, kinds),
    ):
        at = np.flatnonzero(of == np.uint64(start)).tolist()
        if origins and at and origins.thread[at[0]] != NOT_RECORDED:
            return origins, at[0]
    return None


def recorder(recorder: Recorder | None) -> dict[str, Any] | None:
    """Return the part of a document that says how allocations are being recorded."""
    if recorder is None:
        return None
    stopped = None
    if recorder.stopped:
        # Read from the target's memory: it may be anything.
        after_ms = min(recorder.stopped_after_ms, recorder.now_ms)
        at = instant(recorder.started + 1_000_000 * after_ms)
        stopped = {"reason": STOPPED.get(recorder.stopped, "unknown"), "at": at}
    return {
        "since": instant(recorder.started),
        "mode": WAYS_IN.get(recorder.way_in, "unknown"),
        "stacks": STACKS.get(recorder.stacks, "unknown"),
        "min_size": recorder.min_size,
        "sizes": [list(sizes) for sizes in recorder.sizes],
        "sample": recorder.sample,
        "depth": recorder.depth,
        "records": recorder.records,
        "lost": recorder.lost,
        "stopped": stopped,
    }


def recorded(recording: model.Recording) -> str:
    """Return text about how and since when allocations are being recorded; or nothing."""
    recorder = recording.recorder
    if recorder is None:
        return ""
    how_long = f"allocations have been recorded for {duration(recorder.now_ms / 1000)}"
    sampled = f", one for each {count(recorder.sample, 'byte')}" if recorder.sample else ""
    return f"{how_long}{sampled}: {count(recorder.records, 'block')} so far"


def lines(recording: model.Recording, group: Group, style: Style) -> Iterator[str]:
    """Yield text about who allocated a group; nothing if that is unknown."""
    origin = group.origin
    if origin is None:
        return
    yield from layout.row("      ", printable(_when(origin)), "plain", style)
    yield from stack(recording, origin.stack, style)


def stack(recording: model.Recording, stack: int, style: Style) -> Iterator[str]:
    """Yield the frames of a stack as text, one per line."""
    frames = frames_of(recording, stack)
    for frame in frames[:_FRAMES]:
        yield from layout.row("        ", printable(_frame(frame)), "plain", style)
    if len(frames) > _FRAMES:
        more = f"and {count(len(frames) - _FRAMES, 'more caller')}, told by --json"
        yield from layout.row("        ", more, "dim", style)


def block_facts(recording: model.Recording, start: int) -> Iterator[str]:
    """Yield text about who allocated a block; nothing if that is unknown."""
    found = of_block(recording, start)
    if found is None:
        return
    origins, i = found
    if recording.recorder is not None:
        thread = recording.recorded_threads.get(int(origins.thread[i]))
        age = duration(recording.recorder.age_us(int(origins.newest_ms[i])) / 1e6)
        yield f"by {thread.name if thread else 'a thread'}, {age} ago"
    yield from map(_frame, frames_of(recording, int(origins.stack[i])))


def _when(origin: Origin) -> str:
    threads = [thread.name or f"thread {thread.tid}" for thread in origin.threads]
    more = len(threads) - _THREADS
    who = ", ".join(threads[:_THREADS]) + (f" and {count(more, 'more thread')}" if more > 0 else "")
    if origin.oldest_us is None or origin.newest_us is None:
        return "allocated by"
    oldest, newest = (duration(us / 1e6) for us in (origin.oldest_us, origin.newest_us))
    when = f"{newest} ago" if oldest == newest else f"{oldest} to {newest} ago"
    estimate = origin.estimated
    about = f", about {count(estimate.allocations, 'block')} by the sample" if estimate else ""
    return f"allocated by {who}, {when}{about}"


def _frame(frame: Frame) -> str:
    inlined = ", inlined" if frame.inlined else ""
    if frame.file:
        line = f":{frame.line}" if frame.line else ""
        return f"{frame.label} ({frame.file}{line}{inlined})"
    module = PurePosixPath(frame.module).name if frame.function and frame.module else ""
    return f"{frame.label} ({module}{inlined})" if module else frame.label
