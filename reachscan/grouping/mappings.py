"""Mappings that a program asked for while it was recorded, as far as they are still there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from reachscan.recording import model
from reachscan.recording.origins import Mapped, RecordedMapping, Recorder


class LiveMapping(NamedTuple):
    """A mapping, or the stack of a thread, and who asked for it.

    Attributes:
        start, end: its addresses; the guard page of a stack is not in it.
        is_stack: it was made for a thread.
        thread_ended: that thread has ended, but nobody has joined it.
        stack, tid, age_us: who asked for it, and how long before the scan.
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
        """How large it is."""
        return self.end - self.start


def live(recording: model.Recording) -> list[LiveMapping]:
    """Return the recorded mappings by address; none if they are not recorded.

    The kernel has the last word: what was unmapped behind the recorder's back is left out.
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
            # Where two overlap, one has just been cut in two: the later one has the rest.
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
    """What the kernel has mapped."""

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
        """Yield the parts of a range that are mapped; neighbours are one part."""
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
        """Yield the stack of a thread, if it is still its own, and whether the thread has ended.

        C libraries put what describes a thread into the last page of its stack. Below, a stack ends
        at its guard page, or where another recorded mapping does.
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
