"""Mappings that were recorded, against those that the kernel has."""

from __future__ import annotations

import io

from recorders import Recorded
from streams import Leak, Stream

from reachscan.grouping import mappings
from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.origins import NO_STACK, Mapped, RecordedMapping

PAGE = 0x1000
START = 0x7F00_0000_0000
READ_WRITE = 3


def live(*recorded: tuple[int, int], mapped: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the pages from START on that count, given those recorded, and those mapped."""
    first, end = (START + PAGE * page for page in mapped)
    stream = Stream(
        leaks=[Leak(24)],
        mappings=[model.Mapping(first, end, 0, 0, READ_WRITE, "")],
        extra=Recorded([None]).encoded(),
    )
    recording = decode(wire.frames(io.BytesIO(stream.encoded())))
    rows = tuple(
        RecordedMapping(START + PAGE * first, START + PAGE * end, Mapped.MMAP, NO_STACK, 1, 0)
        for first, end in recorded
    )
    found = mappings.live(recording._replace(recorded_mappings=rows))
    return [((m.start - START) // PAGE, (m.end - START) // PAGE) for m in found]


def test_what_the_kernel_no_longer_maps_does_not_count() -> None:
    assert live((0, 4), (6, 8), (9, 12), mapped=(2, 10)) == [(2, 4), (6, 8), (9, 10)]


def test_of_a_mapping_that_loses_its_middle_no_page_counts_twice() -> None:
    # For a moment the first row still has all of it, and the second already the upper part.
    assert live((0, 8), (5, 8), mapped=(0, 8)) == [(0, 5), (5, 8)]
