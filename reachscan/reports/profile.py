"""Blocks by the stacks that allocated them, for the profile and dump formats of other tools.

For a leak search these are all leaked blocks, direct and indirect; for the heap, all live ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model
from reachscan.recording.architectures import ADDRESS_END
from reachscan.recording.origins import NO_STACK, NOT_RECORDED, Frame, Origins
from reachscan.reports import Selection
from reachscan.reports.stacks import calls_of
from reachscan.result import HeapScan, LeakScan
from reachscan.wording import printable

_PLAIN = Selection()

UNKNOWN = "[no stack]"
"""The only frame of blocks whose stack is unknown."""

Scan = Union[LeakScan, HeapScan]


class Sample(NamedTuple):
    """Blocks with the same thread, stack and requested size (total usable bytes).

    Attributes:
        stack: its number, or `NO_STACK`.
        thread: its number, or `NOT_RECORDED`.
        requested: requested bytes of each block; its usable bytes if that is unknown.
    """

    stack: int
    thread: int
    requested: int
    allocations: int
    bytes: int

    def weight(self, selection: Selection) -> int:
        """Return the weight of the sample."""
        return self.allocations if selection.weight == "count" else self.bytes


class Blocks(NamedTuple):
    """Blocks in columns, a row for each leak, or kind of live blocks.

    Attributes:
        address, size: address and size of one block; `bytes` covers all blocks of the row.
    """

    address: model.Addresses
    size: model.Addresses
    count: NDArray[np.int64]  # type: ignore[assignment]  # hides what tuples have
    bytes: NDArray[np.int64]
    origins: Origins | None


def blocks(scan: Scan) -> Blocks:
    """Return all blocks of a scan."""
    recording = scan.recording
    if isinstance(scan, HeapScan):
        count, size = scan.kinds.count.astype(np.int64), scan.kinds.bytes.astype(np.int64)
        return Blocks(scan.kinds.example, scan.kinds.size, count, size, recording.kind_origins)
    leaks = recording.leaks
    size = leaks.size.astype(np.int64)
    return Blocks(leaks.address, leaks.size, np.ones_like(size), size, recording.origins)


def samples(scan: Scan) -> list[Sample]:
    """Return the blocks of a scan by stack, thread and size, sorted by bytes."""
    found = blocks(scan)
    origins = found.origins
    stack = origins.stack if origins else np.full(len(found.size), NO_STACK)
    thread = origins.thread if origins else np.full(len(found.size), NOT_RECORDED)
    requested = found.bytes // np.maximum(found.count, 1)
    if origins:
        # A file may contain any number; no request is larger.
        asked = np.minimum(origins.requested, np.uint64(ADDRESS_END)).astype(np.int64)
        requested = np.where(origins.recorded, asked, requested)
    keys = np.stack([stack, thread.astype(np.int64), requested], axis=1)
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    sums = np.zeros((len(distinct), 2), np.int64)
    np.add.at(sums, which.reshape(-1), np.stack([found.count, found.bytes], axis=1))
    rows = np.concatenate([distinct, sums], axis=1).tolist()
    return sorted((Sample(*row) for row in rows), key=lambda s: (-s.bytes, s))


class Names:
    """Names of frames and threads in one scan, for the formats of other tools."""

    def __init__(self, recording: model.Recording) -> None:
        self._recording = recording
        self._bases = AddressSpace.of(recording).bases
        self._calls: dict[int, list[tuple[Frame, ...]]] = {}

    def calls(self, stack: int) -> list[tuple[Frame, ...]]:
        """Return the calls of a stack, innermost first; none if it is unknown."""
        if stack not in self._calls:
            self._calls[stack] = calls_of(self._recording, stack)
        return self._calls[stack]

    def frames(self, stack: int) -> list[Frame]:
        """Return the frames of a stack, innermost first; none if it is unknown."""
        return [frame for frames in self.calls(stack) for frame in frames]

    def offset(self, frame: Frame) -> int:
        """Return the offset of a frame's `pc` from its module's load address."""
        if frame.module in self._bases:
            return frame.pc - self._bases[frame.module]
        return frame.offset or 0

    def thread(self, number: int) -> str:
        """Return the name of a thread; empty if the blocks are not recorded."""
        if number == NOT_RECORDED:
            return ""
        thread = self._recording.recorded_threads.get(number)
        return (thread.name or f"thread {thread.tid}") if thread else "[unknown thread]"

    def path(self, sample: Sample, selection: Selection) -> tuple[str, ...]:
        """Return the names of a stack's frames, the outermost first."""
        inwards = [text(frame.label) for frame in reversed(self.frames(sample.stack))]
        thread = text(self.thread(sample.thread)) if selection.per_thread else ""
        return (*([thread] if thread else []), *(inwards or [UNKNOWN]))


def text(name: str) -> str:
    """Return a name without characters that end it in a line-based format."""
    return printable(name).replace(";", ":")


def by_path(scan: Scan, selection: Selection) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield each distinct stack, as names of functions, with its weight."""
    names = Names(scan.recording)
    sums: Counter[tuple[str, ...]] = Counter()
    for sample in samples(scan):
        sums[names.path(sample, selection)] += sample.weight(selection)
    yield from sorted(sums.items(), key=lambda item: (-item[1], item[0]))


def graph(scan: Scan) -> dict[str, Any] | None:
    """Return stacks as names of functions, for the HTML page; None if none is known."""
    if scan.recording.stacks is None or not len(scan.recording.stacks.pc):
        return None
    names, sums = Names(scan.recording), Counter[tuple[tuple[str, ...], str, str]]()
    for sample in samples(scan):
        path, thread = names.path(sample, _PLAIN), names.thread(sample.thread)
        sums[path, thread, "allocations"] += sample.allocations
        sums[path, thread, "bytes"] += sample.bytes
    index: dict[str, int] = {}
    stacks = [
        {
            "path": [index.setdefault(name, len(index)) for name in path],
            "thread": thread,
            "allocations": sums[path, thread, "allocations"],
            "bytes": amount,
        }
        for (path, thread, what), amount in sums.items()
        if what == "bytes"
    ]
    return {"names": list(index), "stacks": stacks}
