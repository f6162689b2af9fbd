"""How much of the target's private memory belongs to heaps, and what the rest consists of.

This counts pages of private writable mappings that the program has written to, and short gaps
between them, but not a recorder's tables. It does without numpy, which a scan that finds nothing
does not load.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from reachscan.naming.owners import owners_of
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal
from reachscan.wording import size

ANONYMOUS, STACK, MODULE, FILE = "anonymous", "stack", "module", "file"

WARNING = "memory-outside-heap"

_REGION = struct.Struct("<QQII")
_MAX_LARGEST = 3
_NOTEWORTHY = 16 << 20
_TINY = 4
"""Warn about anonymous memory of `_NOTEWORTHY` bytes that exceeds the heap by this factor."""


class Part(NamedTuple):
    """Memory of a mapping that is not heap; `bytes` of [start, end) were written to."""

    start: int
    end: int
    kind: str
    bytes: int


class PrivateMemory(NamedTuple):
    """Bytes of private memory.

    Attributes:
        heap: bytes in heaps that are understood.
        rest: bytes of everything else, by kind.
        largest: parts of the rest, the largest first.
    """

    heap: int
    rest: dict[str, int]
    largest: tuple[Part, ...]

    @property
    def total(self) -> int:
        """The sum."""
        return self.heap + sum(self.rest.values())

    @property
    def hides_heaps(self) -> bool:
        """Whether another allocator probably owns much of the anonymous memory."""
        return self.rest[ANONYMOUS] >= max(_NOTEWORTHY, _TINY * self.heap)


def heap_owner(recording: model.Recording) -> str:
    """Return the heap's name: `glibc's heap`, `the heap of glibc and jemalloc`, `the heap`."""
    names = dict.fromkeys(heap.allocator.split()[0] for heap in recording.heaps if heap.allocator)
    if len(names) > 1:
        return "the heap of " + " and ".join(names)
    return f"{next(iter(names))}'s heap" if names else "the heap"


def warning(recording: model.Recording, memory: PrivateMemory) -> model.Warning:
    """Return the warning for memory that may hide heaps."""
    return model.Warning(
        WARNING,
        f"{heap_owner(recording)} is {size(memory.heap)}, but {size(memory.rest[ANONYMOUS])} of "
        "anonymous memory belong to no heap that is understood: what another allocator has handed "
        "out there is searched for pointers, but its leaks are not found",
    )


def private_memory(recording: model.Recording) -> PrivateMemory | None:
    """Return what private memory consists of; None if the recording does not say."""
    if recording.absent is None:
        return None
    parts, heap = [], 0
    for mapping, kind, in_heap, written in _measured(recording, recording.absent):
        heap += in_heap
        parts.append(Part(mapping.start, mapping.end, kind, written - in_heap))
    rest = {
        kind: sum(part.bytes for part in parts if part.kind == kind)
        for kind in (ANONYMOUS, STACK, MODULE, FILE)
    }
    largest = sorted((p for p in parts if p.bytes), key=lambda part: -part.bytes)
    return PrivateMemory(heap, rest, tuple(largest[:_MAX_LARGEST]))


def _measured(
    recording: model.Recording, absent: Sequence[tuple[int, int]]
) -> Iterator[tuple[model.Mapping, str, int, int]]:
    """Yield each private writable mapping, its kind, and its bytes: in heaps, and in total."""
    holes, stack_words = _Holes(absent), _stack_words(recording)
    regions = sorted((r[0], r[1]) for r in _REGION.iter_unpack(recording.region_rows))
    first, tables = 0, recording.recorder
    for mapping, owner in zip_equal(
        recording.mappings, owners_of(recording.mappings, recording.modules)
    ):
        if mapping.permissions & (model.WRITE | model.SHARED) != model.WRITE:
            continue
        if tables and tables.start <= mapping.start < tables.start + tables.bytes:
            continue
        while first < len(regions) and regions[first][1] <= mapping.start:
            first += 1
        in_heap, at = 0, first
        while at < len(regions) and regions[at][0] < mapping.end:
            start, end = regions[at]
            in_heap += holes.written(max(start, mapping.start), min(end, mapping.end))
            at += 1
        kind = MODULE if owner else _kind(mapping, stack_words)
        yield mapping, kind, in_heap, holes.written(mapping.start, mapping.end)


def _stack_words(recording: model.Recording) -> list[int]:
    """Return at least one address in the stack of each thread, ascending."""
    words = [t.stack_pointer for t in recording.threads]
    # A thread's descriptor is at the top of its stack, except for the first thread.
    words += [t.thread_pointer for t in recording.threads if t.tid != recording.target.pid]
    return sorted(words)


def _kind(mapping: model.Mapping, stack_words: Sequence[int]) -> str:
    if mapping.path.startswith("/"):
        return FILE
    holds_stack = bisect_left(stack_words, mapping.start) < bisect_left(stack_words, mapping.end)
    return STACK if holds_stack or mapping.path == "[stack]" else ANONYMOUS


class _Holes:
    """Ranges that were never written to."""

    def __init__(self, absent: Sequence[tuple[int, int]]) -> None:
        self._absent = sorted(absent)
        self._starts = [start for start, _ in self._absent]
        self._sums = list(accumulate((end - start for start, end in self._absent), initial=0))

    def written(self, start: int, end: int) -> int:
        """Return the number of bytes in [start, end) outside of all holes."""
        return end - start - (self._before(end) - self._before(start))

    def _before(self, address: int) -> int:
        at = bisect_right(self._starts, address)
        if not at:
            return 0
        start, end = self._absent[at - 1]
        return self._sums[at - 1] + min(address, end) - start
