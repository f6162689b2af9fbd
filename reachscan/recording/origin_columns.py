"""Joins the records that say where blocks were allocated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reachscan import errors
from reachscan.recording import model
from reachscan.recording.origins import DEEPEST, NO_STACK, Origins, Stacks
from reachscan.recording.wire_columns import OriginColumns, StackNodeColumns
from reachscan.recording.zip_equal import zip_equal

_NO_NODES = StackNodeColumns(*(np.empty(0, kind) for kind in ("<u4", "<u4", "<u4", "<u8")))


class Trie:
    """The stack nodes of a stream, and the stacks that they form.

    Attributes:
        stacks: each stack once, although several nodes may represent it.
    """

    def __init__(self, chunks: list[StackNodeColumns]) -> None:
        """Join the nodes of all records.

        Raises:
            StreamError: a node occurs twice.
        """
        nodes = StackNodeColumns(*map(np.concatenate, zip_equal(_NO_NODES, *chunks)))
        order = np.argsort(nodes.node)
        self._numbers = nodes.node[order]
        if len(np.unique(self._numbers)) < len(self._numbers):
            raise errors.StreamError("the stream is damaged: it tells of a caller twice")
        parent = self._positions(nodes.parent[order])
        self._stack_of, self.stacks = entries(parent, nodes.pc[order], nodes.module[order])

    def origins(self, chunks: list[OriginColumns], count: int, what: str) -> Origins | None:
        """Return the origins of `count` leaks or kinds; None if the stream has none.

        Raises:
            StreamError: there are more or fewer of them.
        """
        if not chunks:
            return None
        columns = OriginColumns(*map(np.concatenate, zip_equal(*chunks)))
        if len(columns.node) != count:
            raise errors.StreamError(f"the stream is damaged: its {what} and their origins differ")
        return Origins(self.stacks_of(columns.node), *columns[1:])

    def stacks_of(self, nodes: NDArray[np.uint32]) -> model.Indexes:
        """Return the stacks of nodes, `NO_STACK` for nodes that do not exist."""
        found: model.Indexes = np.append(self._stack_of, NO_STACK)[self._positions(nodes)]
        return found

    def _positions(self, numbers: NDArray[np.uint32]) -> model.Indexes:
        """Return the positions of nodes with these numbers, -1 for nodes that do not exist."""
        if not len(self._numbers):
            return np.full(len(numbers), -1, np.int64)
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return np.where(self._numbers[at] == numbers, at, -1)


def entries(
    parent: model.Indexes, pc: model.Addresses, module: NDArray[np.uint32]
) -> tuple[model.Indexes, Stacks]:
    """Return the number of each node's stack, and the stacks.

    Works from the outermost calls inwards, one level at a time. Nodes that form a circle have no
    outermost call, so they are no stack.
    """
    stack_of = np.full(len(parent), NO_STACK, np.int64)
    parents, pcs, modules = [], [], []
    count = 0
    level = np.flatnonzero(parent < 0)
    waiting = np.flatnonzero(parent >= 0)
    for _ in range(DEEPEST):
        if not len(level):
            break
        above = np.where(parent[level] < 0, NO_STACK, stack_of[parent[level]])
        rows = np.stack([above.view(np.uint64), pc[level], module[level].astype(np.uint64)], axis=1)
        distinct, which = np.unique(rows, axis=0, return_inverse=True)
        stack_of[level] = count + which.reshape(-1)
        count += len(distinct)
        parents.append(distinct[:, 0].astype(np.uint64).view(np.int64))
        pcs.append(distinct[:, 1])
        modules.append(distinct[:, 2].astype(np.uint32))
        ready = stack_of[parent[waiting]] != NO_STACK
        level, waiting = waiting[ready], waiting[~ready]
    none = np.empty(0, np.int64)
    return stack_of, Stacks(
        np.concatenate([none, *parents]),
        np.concatenate([none.view(np.uint64), *pcs]),
        np.concatenate([none.astype(np.uint32), *modules]),
    )
