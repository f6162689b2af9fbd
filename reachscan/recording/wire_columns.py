"""The records of the native helper that are columns: how to read and write them with numpy.

Apart from `wire.py`, since most scans find no leak and need none of this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.recording import model, wire

COLUMN_TYPES: dict[int, np.dtype[Any]] = {
    wire.SHAPES: np.dtype("u1"),
    wire.DIGESTS: np.dtype("<u8"),
}
"""What the records of one column (`wire.COLUMNS`) consist of."""


class LeakColumns(NamedTuple):
    """One leaks record: columns over its payload, `words` with one row per leak."""

    address: model.Addresses
    size: model.Addresses
    parent: NDArray[np.uint32]
    words: model.Addresses

    def slice(self, start: int, stop: int) -> LeakColumns:
        """Return the columns of a range of leaks."""
        return LeakColumns(
            self.address[start:stop],
            self.size[start:stop],
            self.parent[start:stop],
            self.words[start:stop],
        )


def parse_leaks(frame: wire.Frame) -> LeakColumns:
    """Decode a leaks record into columns that share the memory of its payload.

    Raises:
        StreamError: the payload has not the length that its counts say.
    """
    count, width = wire.parse_counts(frame, 2)
    if len(frame.payload) != 8 + count * (20 + 8 * width):
        raise wire.damaged(frame)
    raw = frame.payload
    return LeakColumns(
        np.frombuffer(raw, "<u8", count, 8),
        np.frombuffer(raw, "<u8", count, 8 + 8 * count),
        np.frombuffer(raw, "<u4", count, 8 + 16 * count),
        np.frombuffer(raw, "<u8", count * width, 8 + 20 * count).reshape(count, width),
    )


def parse_column(frame: wire.Frame) -> NDArray[Any]:
    """Decode a record of one column (`COLUMN_TYPES`).

    Raises:
        StreamError: the payload has not the length that its count says.
    """
    kind = COLUMN_TYPES[frame.type]
    (count,) = wire.parse_counts(frame, 1)
    if len(frame.payload) != 4 + count * kind.itemsize:
        raise wire.damaged(frame)
    column: NDArray[Any] = np.frombuffer(frame.payload, kind, count, 4).copy()
    return column


def parse_kinds(frame: wire.Frame) -> model.Kinds:
    """Decode a record of kinds of live blocks into columns.

    Raises:
        StreamError: the payload has not the length that its counts say.
    """
    count, width = wire.parse_counts(frame, 2)
    if len(frame.payload) != 8 + count * (40 + 8 * width):
        raise wire.damaged(frame)
    wide = np.frombuffer(frame.payload, "<u8", 4 * count, 8).reshape(4, count)
    narrow = np.frombuffer(frame.payload, "<u4", 2 * count, 8 + 32 * count).reshape(2, count)
    words = np.frombuffer(frame.payload, "<u8", count * width, 8 + 40 * count)
    count_of, total, size, example = wide
    arena, shape = narrow
    return model.Kinds(count_of, total, size, example, arena, shape, words.reshape(count, width))


def leaks_payload(columns: LeakColumns) -> bytes:
    """Return the payload of a leaks record; the inverse of `parse_leaks`."""
    counts = np.array(columns.words.shape, "<u4")
    return b"".join(column.tobytes() for column in (counts, *columns))


def column_payload(values: NDArray[Any]) -> bytes:
    """Return the payload of a record of one column; the inverse of `parse_column`."""
    return np.array([len(values)], "<u4").tobytes() + values.tobytes()
