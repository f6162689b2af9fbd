"""Collects the columns of a stream as they arrive: leaks, and kinds of live blocks."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan import errors
from reachscan.recording import model, wire, wire_columns
from reachscan.recording.architectures import ADDRESS_END
from reachscan.recording.origin_columns import Trie
from reachscan.recording.wire_columns import (
    COLUMN_TYPES,
    LeakColumns,
    OriginColumns,
    StackNodeColumns,
)
from reachscan.recording.zip_equal import zip_equal

_MANY_ROWS = 1000
_OF_ALL_LEAKS = 4
"""Reasons to doubt all leaks that the helper may have itself."""


class Columns:
    """All columns of one stream."""

    def __init__(self) -> None:
        self._leaks = _Leaks()
        self._kinds: list[model.Kinds] = []
        self._kind_objects: list[NDArray[Any]] = []
        self._origins: list[OriginColumns] = []
        self._kind_origins: list[OriginColumns] = []
        self._nodes: list[StackNodeColumns] = []
        self._small_records: Counter[int] = Counter()

    def add(self, frame: wire.Frame) -> None:
        """Take a record of columns.

        Raises:
            StreamError: it is damaged, or contradicts earlier records.
        """
        self._count(frame)
        if frame.type == wire.LEAKS:
            self._leaks.add(wire_columns.parse_leaks(frame))
        elif frame.type == wire.KINDS:
            self._kinds.append(wire_columns.parse_kinds(frame))
        elif frame.type == wire.KIND_OBJECTS:
            self._kind_objects.append(wire_columns.parse_column(frame))
        elif frame.type == wire.ORIGINS:
            self._origins.append(wire_columns.parse_origins(frame))
        elif frame.type == wire.KIND_ORIGINS:
            self._kind_origins.append(wire_columns.parse_origins(frame))
        elif frame.type == wire.STACK_NODES:
            self._nodes.append(wire_columns.parse_stack_nodes(frame))
        else:
            self._leaks.add_column(frame.type, wire_columns.parse_column(frame))

    def _count(self, frame: wire.Frame) -> None:
        """Refuse streams of many small records: each takes as long to read as a thousand rows."""
        (rows,) = wire.parse_counts(frame, 1)
        if rows < _MANY_ROWS:
            self._small_records[frame.type] += 1
        if self._small_records[frame.type] > wire.MAX_SMALL_RECORDS:
            raise errors.StreamError(
                f"the stream is damaged: it has too many small records of type {frame.type}"
            )

    def leaks(self, doubts: list[Any]) -> model.Leaks:
        """Return the leaks and release them. `doubts` are the rows of the doubt records.

        Raises:
            StreamError: records contradict each other.
        """
        return self._leaks.finish(doubts)

    def kinds(self, totals: model.Totals) -> model.Kinds | None:
        """Return the kinds of live blocks; None unless they were requested.

        Raises:
            StreamError: records contradict each other, or list more than the heap holds.
        """
        joined = _join_kinds(self._kinds, totals)
        if joined is None or not self._kind_objects:
            return joined
        types = np.concatenate(self._kind_objects)
        if len(types) != len(joined.size):
            raise errors.StreamError("the stream is damaged: its columns differ in length")
        return joined._replace(object_type=types)

    def where_from(self, leaks: model.Leaks | None, kinds: model.Kinds | None) -> dict[str, Any]:
        """Return the attributes of a recording that say where blocks come from.

        Raises:
            StreamError: records contradict each other.
        """
        trie = self._trie
        leak_count = len(leaks.address) if leaks else 0
        kind_count = len(kinds.size) if kinds else 0
        return {
            "origins": trie.origins(self._origins, leak_count, "leaks"),
            "kind_origins": trie.origins(self._kind_origins, kind_count, "kinds"),
            "stacks": trie.stacks,
        }

    def stacks_of(self, nodes: list[int]) -> list[int]:
        """Return the numbers of the stacks that nodes stand for."""
        found: list[int] = self._trie.stacks_of(np.array(nodes, np.uint32)).tolist()
        return found

    @cached_property
    def _trie(self) -> Trie:
        return Trie(self._nodes)


class _Leaks:
    """Joins leaks records. Of an indirect leak it keeps only the first word."""

    def __init__(self) -> None:
        self._chunks: list[LeakColumns] = []
        self._first_words: list[model.Addresses] = []
        self._columns: dict[int, list[NDArray[Any]]] = {kind: [] for kind in COLUMN_TYPES}
        self._count = 0

    def add(self, chunk: LeakColumns) -> None:
        if self._chunks and chunk.words.shape[1] != self._chunks[0].words.shape[1]:
            raise errors.StreamError("the stream is damaged: its leaks differ in leading words")
        is_head = chunk.parent == model.DIRECT
        own_position = np.arange(self._count, self._count + len(chunk.parent))
        if bool(np.any(~is_head & (chunk.parent >= own_position))):
            raise errors.StreamError("the stream is damaged: a leak precedes what it hangs below")
        if bool(np.any(chunk.size >= ADDRESS_END)):
            raise errors.StreamError("the stream is damaged: a block is impossibly large")
        self._count += len(chunk.parent)
        words = chunk.words
        first = words[:, 0].copy() if words.shape[1] else np.zeros(len(words), np.uint64)
        self._first_words.append(first)
        # Copies release the payload, which is mostly words of indirect leaks.
        self._chunks.append(
            LeakColumns(
                chunk.address.copy(), chunk.size.copy(), chunk.parent.copy(), words[is_head]
            )
        )

    def add_column(self, kind: int, values: NDArray[Any]) -> None:
        self._columns[kind].append(values)

    def finish(self, doubts: list[Any]) -> model.Leaks:
        shape, digest, object_type = map(self._column, COLUMN_TYPES)
        if not self._chunks:
            return model.Leaks.none()
        address, size, parent, words = (
            np.concatenate(column) for column in zip_equal(*self._chunks)
        )
        self._chunks.clear()
        return model.Leaks(
            address,
            size,
            parent,
            np.flatnonzero(parent == model.DIRECT),
            words,
            np.concatenate(self._first_words),
            shape if len(shape) else np.zeros(self._count, np.uint8),
            _reasons(doubts, self._count),
            digest,
            object_type,
        )

    def _column(self, kind: int) -> NDArray[Any]:
        column = np.concatenate([np.zeros(0, COLUMN_TYPES[kind]), *self._columns[kind]])
        if len(column) not in (0, self._count):
            raise errors.StreamError("the stream is damaged: its columns differ in length")
        return column


def _reasons(doubts: list[Any], count: int) -> NDArray[np.uint8]:
    reasons = np.zeros(count, np.uint8)
    # Each leak begins at most one range; the last ones, of all leaks, are the helper's.
    if (
        len(doubts) > count + _OF_ALL_LEAKS
        or sum(doubt.count for doubt in doubts) > len(model.REASONS) * count
    ):
        raise errors.StreamError("the stream is damaged: it doubts leaks too often")
    for doubt in doubts:
        if doubt.first + doubt.count > count or doubt.reason not in (
            model.DEFINITE,
            *model.REASONS,
        ):
            raise errors.StreamError(
                "the stream is damaged: it doubts a leak that it does not hold"
            )
        part = reasons[doubt.first : doubt.first + doubt.count]
        part[part == model.DEFINITE] = doubt.reason
    return reasons


def _join_kinds(chunks: list[model.Kinds], totals: model.Totals) -> model.Kinds | None:
    if not chunks:
        return None
    if len({chunk.words.shape[1] for chunk in chunks}) > 1:
        raise errors.StreamError("the stream is damaged: its kinds differ in leading words")
    sums = [column for chunk in chunks for column in (chunk.count, chunk.bytes)]
    if any(bool(np.any(column >= ADDRESS_END)) for column in sums):
        raise errors.StreamError("the stream is damaged: a kind of blocks is impossibly large")
    joined = model.Kinds(*map(np.concatenate, zip_equal(*chunks)))
    if joined.count.sum() > totals.allocations or joined.bytes.sum() > totals.bytes:
        raise errors.StreamError("the stream is damaged: its kinds are more than the heap holds")
    return joined
