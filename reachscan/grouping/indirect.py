"""The blocks below groups of leaks, as one tree of kinds per group. Pure functions on columns.

The path from a head down to a block is a list of kinds. It may be a million long and full of loops:
list node, list node, ...; or A, B, A, B, ... Its loops are erased: when a kind occurs again,
everything since its last occurrence is dropped. The rest names the branch that the block belongs
to. (Loop erasure: G. F. Lawler, "A self-avoiding random walk", Duke Math. J. 47, 1980.)

Erasing from the top is fast. In a tree whose top is of kind K, the last K on the path to a block
ends the first loop; removing all blocks of kind K splits the tree into smaller ones, and so on.
Each such step handles all trees of all groups at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reachscan.grouping.groups import Branch, Folding
from reachscan.naming import containers
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

DEPTH = 12
"""Maximum levels of a tree; deeper blocks are counted, but their kinds are not distinguished."""

BLOCK = "block"
"""The name of blocks whose size is all that is known."""

_NONE = -1

Column = model.Indexes
Trees = list[tuple[Branch, ...]]


def grow(leaks: model.Leaks, folding: Folding, groups: int, rows: int) -> Trees:
    """Return the trees below the first groups, in their order, branches largest first.

    Args:
        leaks: all leaks of the scan.
        folding: the groups of their heads.
        groups: how many groups are wanted.
        rows: maximum number of branches to show in each tree; the largest are shown. The others
            below a branch are summed up in one without a name, unless there is only one.
    """
    groups = min(groups, len(folding.example))
    if not folding.indirect_allocations[:groups].any():
        return [()] * groups
    group_of_leak = folding.group_of_leak
    chosen = np.flatnonzero(group_of_leak < groups)
    direct = leaks.parent[chosen] == model.DIRECT
    kind, names = _kinds(leaks, folding, chosen)
    heads = np.flatnonzero(direct)
    # A head and the blocks below it are adjacent.
    head = np.repeat(heads, np.diff(np.append(heads, len(chosen))))[~direct]
    below = chosen[~direct]
    branches = _Branches(groups)
    branch = branches.sort_in(
        kind[~direct],
        _parents(leaks, below),
        group_of_leak[below].astype(np.int64),
        kind[head],
    )
    totals = _Totals.of(branches, branch, leaks.size[below].astype(np.int64))
    return _build(branches, totals, _select(branches, totals, rows), names)


def _parents(leaks: model.Leaks, below: model.Indexes) -> Column:
    """Return the parents of some indirect leaks among themselves, `_NONE` if it is a head."""
    place = np.full(len(leaks.parent), _NONE, np.int64)
    place[below] = np.arange(len(below))
    parents: Column = place[leaks.parent[below]]
    return parents


def _kinds(
    leaks: model.Leaks, folding: Folding, chosen: model.Indexes
) -> tuple[Column, tuple[str, ...]]:
    """Return the number of each chosen leak's kind, and the names of the kinds.

    The kind is the C++ type, or else the shape, or else the size.
    """
    shape = leaks.shape[chosen].astype(np.int64)
    shape[shape == model.STRING] = model.TEXT
    kind = np.where((shape != model.UNKNOWN_SHAPE) & (shape < len(containers.SHAPES)), shape, _NONE)
    types = folding.joined.types
    type_ = types.at(leaks.type_word[chosen])
    typed = (type_ >= 0) & (leaks.size[chosen] >= folding.joined.rows.word)
    kind[typed] = len(containers.SHAPES) + type_[typed]
    rest = kind == _NONE
    sizes, number = np.unique(leaks.size[chosen][rest], return_inverse=True)
    names = (*containers.SHAPES, *types.names)
    kind[rest] = len(names) + number.reshape(-1)
    return kind, names + (BLOCK,) * len(sizes)


class _Branches:
    """Branches, found level by level: each comes after its parent.

    The first ones represent the groups and have no blocks of their own. The last ones have no kind:
    they hold blocks below the maximum depth.

    Attributes:
        parent, kind: one array per level, joined by `columns`.
        deep_kinds: number of kinds in each of the last ones.
    """

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.parent = [np.arange(groups)]
        self.kind = [np.full(groups, _NONE)]
        self.deep_kinds = np.empty(0, np.int64)

    def sort_in(self, kind: Column, parent: Column, group: Column, head_kind: Column) -> Column:
        """Return the branch of each block, given its parent among the blocks, or `_NONE`."""
        branch = np.empty(len(kind), np.int64)
        at = np.arange(len(kind))
        # A block of its head's kind ends a loop: blocks below it belong directly below the group.
        again = kind == head_kind
        parent = np.where(again | ((parent >= 0) & again[parent]), _NONE, parent)
        anchor = group
        for _ in range(DEPTH):
            if not len(at):
                return branch
            top = _tops(parent)
            found = self._add(anchor, kind, parent < 0)[top]
            same = kind == kind[top]
            branch[at[same]] = found[same]
            place = np.where(same, _NONE, np.cumsum(~same) - 1)
            parent = np.where(parent < 0, _NONE, place[parent])[~same]
            at, kind, anchor = at[~same], kind[~same], found[~same]
        branch[at] = self._add_deep(anchor, kind)
        return branch

    def _add(self, anchor: Column, kind: Column, tops: model.Flags) -> Column:
        """Add a branch for each kind of top block below each anchor; return each block's branch."""
        width = int(kind.max()) + 1
        keys, number = np.unique(anchor[tops] * width + kind[tops], return_inverse=True)
        found = np.full(len(kind), _NONE, np.int64)
        found[tops] = sum(map(len, self.kind)) + number.reshape(-1)
        self.parent.append(keys // width)
        self.kind.append(keys % width)
        return found

    def _add_deep(self, anchor: Column, kind: Column) -> Column:
        """Add a branch without a kind below each anchor; return each block's branch."""
        anchors, number = np.unique(anchor, return_inverse=True)
        number = number.reshape(-1)
        width = int(kind.max(initial=0)) + 1
        self.deep_kinds = np.bincount(np.unique(number * width + kind) // width)
        first = sum(map(len, self.kind))
        self.parent.append(anchors)
        self.kind.append(np.full(len(anchors), _NONE))
        return first + number

    def columns(self) -> tuple[Column, Column]:
        """Return parent and kind of all branches."""
        return np.concatenate(self.parent), np.concatenate(self.kind)


def _tops(parent: Column) -> Column:
    """Return the topmost ancestor of each block; the steps double (pointer jumping)."""
    above = np.where(parent < 0, np.arange(len(parent)), parent)
    while True:
        further = above[above]
        if np.array_equal(further, above):
            return above
        above = further


@dataclass(frozen=True)
class _Totals:
    """The allocations, bytes and kinds of each branch: its own, and with everything below."""

    own: tuple[Column, Column, Column]
    whole: tuple[Column, Column, Column]
    smallest: Column
    largest: Column

    @classmethod
    def of(cls, branches: _Branches, branch: Column, size: Column) -> _Totals:
        count = sum(map(len, branches.kind))
        amount, largest = np.zeros(count, np.int64), np.zeros(count, np.int64)
        smallest = np.full(count, np.iinfo(np.int64).max)
        np.add.at(amount, branch, size)
        np.minimum.at(smallest, branch, size)
        np.maximum.at(largest, branch, size)
        kinds = np.ones(count, np.int64)
        kinds[: branches.groups] = 0
        kinds[count - len(branches.deep_kinds) :] = branches.deep_kinds
        own = (np.bincount(branch, minlength=count).astype(np.int64), amount, kinds)
        whole = tuple(_with_all_below(column, branches.parent) for column in own)
        return cls(own, (whole[0], whole[1], whole[2]), smallest, largest)


def _with_all_below(column: Column, levels: list[Column]) -> Column:
    total: Column = column.copy()
    end = len(total)
    for parent in reversed(levels[1:]):
        np.add.at(total, parent, total[end - len(parent) : end])
        end -= len(parent)
    return total


@dataclass(frozen=True)
class _Selection:
    """The branches to show, parents first and otherwise largest first; and sums of the others.

    Attributes:
        hidden: allocations, bytes and kinds directly below each branch that are not shown.
    """

    shown: Column
    hidden: list[Column]


def _select(branches: _Branches, totals: _Totals, rows: int) -> _Selection:
    parent, kind = branches.columns()
    groups = branches.groups
    group = parent.copy()
    first = groups
    for level in branches.parent[1:]:
        group[first : first + len(level)] = group[level]
        first += len(level)
    named = np.flatnonzero(kind != _NONE)
    # Among equals, an ancestor comes first, since it was found first.
    order = named[np.lexsort((named, -totals.whole[1][named], group[named]))]
    rank = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    visible = np.zeros(len(kind), bool)
    visible[:groups] = True
    visible[order[rank < rows]] = True
    hidden = [w - o for w, o in zip_equal(totals.whole, totals.own)]
    _subtract_hidden(hidden, totals, parent, np.flatnonzero(visible)[groups:])
    single = order[(rank >= rows) & visible[parent[order]] & (hidden[2][parent[order]] == 1)]
    visible[single] = True
    _subtract_hidden(hidden, totals, parent, single)
    return _Selection(order[visible[order]], hidden)


def _subtract_hidden(hidden: list[Column], totals: _Totals, parent: Column, shown: Column) -> None:
    for column, whole in zip_equal(hidden, totals.whole):
        np.subtract.at(column, parent[shown], whole[shown])


def _build(
    branches: _Branches, totals: _Totals, selection: _Selection, names: tuple[str, ...]
) -> Trees:
    parent, kind = branches.columns()
    rows = selection.shown[::-1]  # descendants come before ancestors
    below: dict[int, list[Branch]] = {}

    def close(branch: int, hidden: tuple[int, ...]) -> tuple[Branch, ...]:
        found = below.pop(branch, [])[::-1]
        if hidden[2]:
            found.append(Branch(None, hidden[2], hidden[0], hidden[1], None, None, ()))
        return tuple(found)

    columns = (parent, kind, *totals.own[:2], totals.smallest, totals.largest, *selection.hidden)
    table = zip_equal(rows.tolist(), *(column[rows].tolist() for column in columns))
    for row, above, which, allocations, amount, smallest, largest, *hidden in table:
        shown = close(row, tuple(hidden))
        made = Branch(names[which], 1, allocations, amount, smallest, largest, shown)
        below.setdefault(above, []).append(made)
    rest = (column[: branches.groups].tolist() for column in selection.hidden)
    return [close(group, hidden) for group, hidden in enumerate(zip_equal(*rest))]
