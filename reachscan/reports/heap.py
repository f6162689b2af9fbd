"""The contents of reports on the live heap: kinds of blocks, and their arenas."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reachscan.grouping.groups import Group
from reachscan.recording.zip_equal import zip_equal
from reachscan.result import HeapScan


class Arena(NamedTuple):
    """The amount of a kind in one arena (0 is the main arena; usable bytes)."""

    arena: int
    allocations: int
    bytes: int


Rows = list[tuple[Group, list[Arena]]]


def rows(result: HeapScan, limit: int) -> Rows:
    """Return the largest kinds, and the arenas of each."""
    return [(group, _arenas(result, i)) for i, group in enumerate(result.groups(limit))]


def _arenas(result: HeapScan, group: int) -> list[Arena]:
    """Return the arenas with blocks of a group, the largest share first."""
    kinds = result.kinds
    members = result.folding.group_of_row == group
    numbers, where = np.unique(kinds.arena[members], return_inverse=True)
    sums = [
        np.bincount(where.reshape(-1), column[members].astype(np.float64)).astype(np.int64)
        for column in (kinds.count, kinds.bytes)
    ]
    found = [Arena(*row) for row in zip_equal(numbers.tolist(), *map(np.ndarray.tolist, sums))]
    return sorted(found, key=lambda arena: (-arena.bytes, arena.arena))
