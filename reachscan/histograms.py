"""How large leaked blocks are: a histogram per group. Pure functions on columns."""

from __future__ import annotations

import numpy as np

from reachscan import model

Histogram = tuple[model.SizeCount, ...]


def of_groups(
    leaks: model.Leaks, folding: model.Folding, groups: int, rows: int
) -> list[Histogram]:
    """Return the sizes of the direct leaks of the first groups, the most frequent first.

    Args:
        leaks: all leaks.
        folding: how their heads are grouped.
        groups: how many groups are wanted.
        rows: how many sizes of each; all others are added up in one row without a size.
    """
    groups = min(groups, len(folding.example))
    group = folding.group_of_leak[leaks.heads]
    chosen = leaks.heads[group < groups]
    group, size = folding.group_of_leak[chosen], leaks.size[chosen].astype(np.int64)
    order = np.lexsort((size, group))
    group, size = group[order], size[order]
    begins = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(size, prepend=-1))
    count = np.diff(begins, append=len(size))
    group, size = group[begins], size[begins]
    frequent = np.lexsort((-size, -count, group))
    bounds = np.searchsorted(group, np.arange(groups + 1))
    pairs = list(zip(size[frequent].tolist(), count[frequent].tolist(), strict=True))
    spans = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return [_histogram(pairs[first:last], rows) for first, last in spans]


def _histogram(pairs: list[tuple[int, int]], rows: int) -> Histogram:
    shown = tuple(model.SizeCount(size, count, size * count) for size, count in pairs[:rows])
    rest = pairs[rows:]
    if not rest:
        return shown
    amount = sum(size * count for size, count in rest)
    return (*shown, model.SizeCount(None, sum(count for _, count in rest), amount))
