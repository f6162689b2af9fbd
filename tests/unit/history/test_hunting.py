"""Which sizes `where` has recorded."""

from __future__ import annotations

import pytest

from reachscan.capture.recording_options import MAX_RANGES
from reachscan.history import hunting


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ()),
        ([(6, 9), (1, 5)], ((1, 9),)),
        ([(1, 5), (7, 9)], ((1, 5), (7, 9))),
        ([(1, 50), (7, 9), (50, 60)], ((1, 60),)),
    ],
)
def test_only_ranges_that_touch_become_one(
    given: list[tuple[int, int]], expected: hunting.Ranges
) -> None:
    assert hunting.merged(given) == expected


def test_of_too_many_ranges_the_closest_become_one() -> None:
    ranges = [(1000 * i, 1000 * i + 1) for i in range(MAX_RANGES)]
    found = hunting.merged([*ranges, (3003, 3004)])
    assert found == (*ranges[:3], (3000, 3004), *ranges[4:])
