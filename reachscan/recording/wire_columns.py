"""Reads and writes the helper's records of columns with numpy.

Separate from `wire.py`, since most scans find no leak and need none of this.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.recording import model, wire
from reachscan.recording.zip_equal import zip_equal

_TYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype("u1"),
    "u32": np.dtype("<u4"),
    "u64": np.dtype("<u8"),
}


class _Column(NamedTuple):
    """Values of one type; if `is_wide`, a row of `w` values each."""

    name: str
    type: np.dtype[Any]
    is_wide: bool


def _columns_of(layout: str) -> tuple[_Column, ...]:
    """Return the columns of a record from its entry in `wire.LAYOUTS`."""
    found = []
    for kind, field in (part.split() for part in layout.split(", ") if "[" in part):
        name, _, length = field.rstrip("]").partition("[")
        found.append(_Column(name, _TYPES[kind], length == "n*w"))
    return tuple(found)


COLUMNS = {kind: _columns_of(wire.LAYOUTS[kind]) for kind in wire.COLUMNS}

COLUMN_TYPES = {kind: COLUMNS[kind][0].type for kind in (wire.SHAPES, wire.DIGESTS, wire.OBJECTS)}
"""The value types of records with a single column, about leaks."""


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
        StreamError: the payload's length does not match its counts.
    """
    return LeakColumns(**_parse(frame))


class OriginColumns(NamedTuple):
    """One record of the origins of leaks or kinds; `node` is the innermost call."""

    node: NDArray[np.uint32]
    thread: NDArray[np.uint32]
    oldest_ms: model.Addresses
    newest_ms: model.Addresses
    requested: model.Addresses


class StackNodeColumns(NamedTuple):
    """One record of stack nodes."""

    node: NDArray[np.uint32]
    parent: NDArray[np.uint32]
    module: NDArray[np.uint32]
    pc: model.Addresses


def parse_origins(frame: wire.Frame) -> OriginColumns:
    """Decode a record of origins. A leak was allocated once: its oldest and newest times are equal.

    Raises:
        StreamError: the payload's length does not match its count.
    """
    columns = _parse(frame)
    if frame.type == wire.ORIGINS:
        time = columns.pop("time_ms")
        columns |= {"oldest_ms": time, "newest_ms": time}
    return OriginColumns(**columns)


def parse_stack_nodes(frame: wire.Frame) -> StackNodeColumns:
    """Decode a record of stack nodes.

    Raises:
        StreamError: the payload's length does not match its count.
    """
    return StackNodeColumns(**_parse(frame))


def parse_column(frame: wire.Frame) -> NDArray[Any]:
    """Decode a record of one column.

    Raises:
        StreamError: the payload's length does not match its count.
    """
    (column,) = _parse(frame).values()
    copied: NDArray[Any] = column.copy()
    return copied


def parse_kinds(frame: wire.Frame) -> model.Kinds:
    """Decode a record of kinds of live blocks into columns.

    Raises:
        StreamError: the payload's length does not match its counts.
    """
    columns = _parse(frame)
    return model.Kinds(**columns, object_type=columns["size"][:0])


def _parse(frame: wire.Frame) -> dict[str, NDArray[Any]]:
    columns = COLUMNS[frame.type]
    counts = wire.parse_counts(frame, 1 + any(column.is_wide for column in columns))
    count, width = counts[0], counts[-1]
    lengths = [count * width if column.is_wide else count for column in columns]
    at = wire.COUNT.size * len(counts)
    sizes = (n * column.type.itemsize for n, column in zip_equal(lengths, columns))
    if len(frame.payload) != at + sum(sizes):
        raise wire.damaged(frame)
    found = {}
    for column, length in zip_equal(columns, lengths):
        values: NDArray[Any] = np.frombuffer(frame.payload, column.type, length, at)
        found[column.name] = values.reshape(count, width) if column.is_wide else values
        at += values.nbytes
    return found


def leaks_payload(columns: LeakColumns) -> bytes:
    """Return the payload of a leaks record; the inverse of `parse_leaks`."""
    counts = np.array(columns.words.shape, "<u4")
    return b"".join(column.tobytes() for column in (counts, *columns))


def origins_payload(columns: OriginColumns) -> bytes:
    """Return the payload of a record of origins of leaks; the inverse of `parse_origins`."""
    parts = (columns.node, columns.thread, columns.oldest_ms, columns.requested)
    return np.array([len(columns.node)], "<u4").tobytes() + b"".join(c.tobytes() for c in parts)


def column_payload(values: NDArray[Any]) -> bytes:
    """Return the payload of a record of one column; the inverse of `parse_column`."""
    return np.array([len(values)], "<u4").tobytes() + values.tobytes()
