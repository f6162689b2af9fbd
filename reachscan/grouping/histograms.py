"""Counts the sizes of leaked blocks. Pure functions on columns."""

from __future__ import annotations

import numpy as np

from reachscan.grouping.groups import Folding, SizeClass, SizeCount
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

Histogram = tuple[SizeCount, ...]


def of_groups(folding: Folding, groups: int, sizes: int) -> list[Histogram]:
    """Return the sizes of the blocks of the first groups, the most frequent first.

    Args:
        folding: the blocks and their groups.
        groups: number of groups.
        sizes: maximum number of sizes for each; one row without a size sums up all others.
    """
    rows, groups = folding.joined.rows, min(groups, len(folding.example))
    chosen = folding.group_of_row < groups
    group, size = folding.group_of_row[chosen], rows.size[chosen].astype(np.int64)
    order = np.lexsort((size, group))
    group, size = group[order], size[order]
    begins = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(size, prepend=-1))
    count = np.add.reduceat(rows.count[chosen][order], begins) if len(begins) else begins
    group, size = group[begins], size[begins]
    frequent = np.lexsort((-size, -count, group))
    bounds = np.searchsorted(group, np.arange(groups + 1))
    pairs = list(zip_equal(size[frequent].tolist(), count[frequent].tolist()))
    spans = zip_equal(bounds[:-1].tolist(), bounds[1:].tolist())
    return [_histogram(pairs[first:last], sizes) for first, last in spans]


def _histogram(pairs: list[tuple[int, int]], sizes: int) -> Histogram:
    shown = tuple(SizeCount(size, count, size * count) for size, count in pairs[:sizes])
    rest = pairs[sizes:]
    if not rest:
        return shown
    amount = sum(size * count for size, count in rest)
    return (*shown, SizeCount(None, sum(count for _, count in rest), amount))


def of_all(leaks: model.Leaks) -> list[SizeClass]:
    """Return the number of leaks in each range between powers of two, smallest first."""
    size = leaks.size.astype(np.float64)  # exact: no block is larger than its 53 binary digits
    digits = np.frexp(size)[1]
    count = np.bincount(digits)
    amount = np.zeros(len(count), np.int64)
    np.add.at(amount, digits, leaks.size.astype(np.int64))
    return [
        SizeClass(1 << (n - 1) if n else 0, (1 << n) - 1, int(count[n]), int(amount[n]))
        for n in np.flatnonzero(count).tolist()
    ]
