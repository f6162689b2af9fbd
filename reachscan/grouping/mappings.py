"""Mappings that a program created while it was recorded, and that still exist."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from reachscan.recording import model
from reachscan.recording.origins import Mapped, RecordedMapping, Recorder


class LiveMapping(NamedTuple):
    """A mapping, or the stack of a thread, and who created it.

    Attributes:
        start, end: its addresses, without the guard page of a stack.
        is_stack: it is the stack of a thread.
        thread_ended: the thread has exited, but was not joined.
        stack, tid, age_us: who created it, and how many µs before the scan.
    """

    start: int
    end: int
    is_stack: bool
    thread_ended: bool
    stack: int
    tid: int | None
    age_us: int

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.end - self.start


def live(recording: model.Recording) -> list[LiveMapping]:
    """Return the recorded mappings by address; none if mappings are not being recorded.

    Ranges that the kernel no longer maps are left out: the recorder may have missed an unmap.
    """
    rows = sorted(recording.recorded_mappings or ())
    recorder = recording.recorder
    if not rows or recorder is None:
        return []
    spans = _Spans(recording)
    found: list[LiveMapping] = []
    for i, row in enumerate(rows):
        following = rows[i + 1].start if i + 1 < len(rows) else row.end
        if row.kind is Mapped.MMAP:
            # Two that overlap are being split in two: the later one has the rest.
            parts = [(*part, False) for part in spans.within(row.start, min(row.end, following))]
        else:
            parts = list(spans.stack(row, found[-1].end if found else 0))
        found += (_mapping(recording, recorder, row, *part) for part in parts)
    return found


def _mapping(
    recording: model.Recording,
    recorder: Recorder,
    row: RecordedMapping,
    start: int,
    end: int,
    ended: bool,
) -> LiveMapping:
    thread = recording.recorded_threads.get(row.thread)
    tid = thread.tid if thread else None
    age_us = recorder.age_us(row.time_ms)
    return LiveMapping(start, end, row.kind is not Mapped.MMAP, ended, row.stack, tid, age_us)


class _Spans:
    """The ranges that the kernel maps."""

    def __init__(self, recording: model.Recording) -> None:
        mappings = sorted((m.start, m.end) for m in recording.mappings)
        self._mappings = mappings
        self._writable = {m.start for m in recording.mappings if m.permissions & model.WRITE}
        self._starts = [start for start, _ in mappings]
        self._page = recording.page_size
        self._threads = sorted(
            {t.thread_pointer for t in recording.threads}
            | {t.stack_pointer for t in recording.threads}
        )

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the mapped parts of a range; adjacent ones are joined."""
        begun = None
        at = max(0, bisect_right(self._starts, start) - 1)
        last = start
        for first, stop in self._mappings[at:]:
            if first >= end:
                break
            first, stop = max(first, start), min(stop, end)
            if first >= stop:
                continue
            if begun is not None and first != last:
                yield begun, last
                begun = first
            begun, last = first if begun is None else begun, stop
        if begun is not None:
            yield begun, last

    def stack(self, row: RecordedMapping, above: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the stack of a thread, if it still has it, and whether the thread has exited.

        C libraries store a thread's descriptor in the last page of its stack. The lower end of a
        stack is its guard page, or the end of another recorded mapping.
        """
        at = bisect_right(self._starts, row.start) - 1
        if at < 0 or row.start >= self._mappings[at][1] or self._starts[at] not in self._writable:
            return
        start = max(self._mappings[at][0], above)
        end = row.end + -row.end % self._page
        ended = not self._has_thread(start, end)
        if not (ended and row.kind is Mapped.DETACHED_STACK):
            yield start, end, ended

    def _has_thread(self, start: int, end: int) -> bool:
        at = bisect_right(self._threads, end - 1) - 1
        return at >= 0 and self._threads[at] >= start
