"""What is recorded: sizes, samples, and what happens when there is no more room."""

from __future__ import annotations

import math
import os
import subprocess

import pytest
import victims

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

NOT, FULL, STOP_AT = 0, 1, 2
"""Why recording ended (native/recorder/tables.hpp)."""


def told(what: str, options: RecordingOptions) -> list[tuple[str, int]]:
    flags = ("-std=c++20", f"-I{victims.REPOSITORY / 'native'}")
    done = subprocess.run(
        [str(victims.build("recorded_sizes", flags)), what],
        env={
            **os.environ,
            "LD_PRELOAD": str(RECORDER),
            VARIABLE: options.settings(0, ""),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split(": ") for line in done.stdout.splitlines()]
    return [(name, int(number)) for name, number in rows]


def recorded(what: str, options: RecordingOptions) -> list[int]:
    """Return the sizes of which blocks were recorded."""
    rows = told(what, options)
    assert rows[-2:] == [("stopped", NOT), ("lost", 0)]
    return [int(name) for name, count in rows[:-2] if count]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (RecordingOptions(), [16, 24, 100, 150, 200, 1023, 1024, 5000]),
        (RecordingOptions(min_size=1024), [1024, 5000]),
        (RecordingOptions(sizes=((100, 200),)), [100, 150, 200]),
        (RecordingOptions(sizes=((24, 24), (200, 1023))), [24, 200, 1023]),
        (RecordingOptions(min_size=150, sizes=((24, 24), (100, 200))), [150, 200]),
        (RecordingOptions(min_size=6000, sizes=((24, 24),)), []),
    ],
)
def test_blocks_of_these_sizes_are_recorded(options: RecordingOptions, expected: list[int]) -> None:
    assert recorded("sizes", options) == expected


def test_a_block_that_moves_across_the_limit() -> None:
    assert recorded("moves", RecordingOptions(min_size=1500)) == [2000, 3000]


def test_samples_are_unbiased() -> None:
    distance = 20_000
    rows = dict(told("samples", RecordingOptions(sample=distance)))
    for size, blocks in ((100, 100_000), (10_000, 2000)):
        chance = 1 - math.exp(-size / distance)
        deviation = math.sqrt(blocks * chance * (1 - chance))
        assert abs(rows[str(size)] - blocks * chance) < 5 * deviation


def test_full_tables_say_so_and_follow_what_is_freed() -> None:
    rows = told("exhaust", RecordingOptions(memory=1 << 20))
    counts = [count for name, count in rows if name == "48"]
    assert counts[0] > 10_000
    assert counts[1:] == [0, 0]
    assert rows[-2] == ("stopped", FULL)
    assert rows[-1][1] > 0


def test_recording_stops_at_a_size() -> None:
    rows = told("exhaust", RecordingOptions(stop_at=48_000))
    counts = [count for name, count in rows if name == "48"]
    assert 0 < counts[0] <= 1000
    assert counts[1:] == [0, 0]
    assert rows[-2:] == [("stopped", STOP_AT), ("lost", 0)]
