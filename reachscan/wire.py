"""The stream of the native helper: its records and how to read and write them.

Mirrors native/wire/protocol.hpp; docs/wire-format.md draws every record. The stream comes from a
process that read foreign memory, or from a file of unknown origin: nothing in it is trusted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import construct as c
import numpy as np
from numpy.typing import NDArray

from reachscan import errors, model

MAGIC = b"\x89RSCAN\r\n"
VERSION = 1
LITTLE_ENDIAN = 1
WORD_SIZE = 8
MAX_PAYLOAD = 64 << 20

TARGET, MAPPINGS, MODULES, THREADS, SNAPSHOT, HEAP, REGIONS, LEAKS = range(1, 9)
TYPES, PROGRESS, WARNING, FAILURE, FINAL, NAMES, CONTENTS = range(9, 16)
DOUBTS, SHAPES, DIGESTS, KINDS, BLOCK, REFERENCES, CHAIN, WORD_OWNERS = range(16, 24)
CONFIRMATION = 24
LAST_RECORDS = (FAILURE, FINAL)

PHASES = {1: "freeze", 2: "quiesce", 3: "clone", 4: "enumerate", 5: "mark", 6: "collect"}

_U32, _I32, _U64 = c.Int32ul, c.Int32sl, c.Int64ul
_BYTES = c.Prefixed(_U32, c.GreedyBytes)
_STR = c.ExprAdapter(
    _BYTES,
    lambda raw, _: raw.decode("utf-8", "backslashreplace"),
    lambda text, _: text.encode("utf-8"),
)


def _array(**fields: c.Construct) -> c.Construct:
    return c.PrefixedArray(_U32, c.Struct(**{k: k / v for k, v in fields.items()}))


HELLO = c.Struct(
    "magic" / c.Bytes(8),
    "version" / c.Int16ul,
    "byte_order" / c.Int8ul,
    "word_size" / c.Int8ul,
    "reserved" / _U32,
)
FRAME = c.Struct("type" / _U32, "length" / _U32)

_REFERENCES = _array(slot=_U64, value=_U64, holder=_U32, index=_U32, block=_U64, size=_U64)

RECORDS: dict[int, c.Construct] = {
    TARGET: c.Struct(
        "pid" / _U32,
        "threads" / _U32,
        "started" / _U64,
        "name" / _STR,
        "exe" / _STR,
        "command" / c.PrefixedArray(_U32, _STR),
    ),
    MAPPINGS: _array(start=_U64, end=_U64, offset=_U64, inode=_U64, permissions=_U32, path=_STR),
    MODULES: _array(base=_U64, path=_STR, build_id=_BYTES),
    THREADS: _array(
        tid=_U32, stack_pointer=_U64, program_counter=_U64, thread_pointer=_U64, name=_STR
    ),
    SNAPSHOT: c.Struct(
        "method" / _STR,
        "reason" / _STR,
        "pause_ns" / _U64,
        "attempts" / _U32,
        "drain_runs" / _U32,
        "phases" / _array(phase=_STR, ns=_U64),
    ),
    HEAP: c.Struct(
        "allocator" / _STR, "allocations" / _U64, "bytes" / _U64, "arenas" / _U32, "regions" / _U32
    ),
    TYPES: _array(vtable=_U64, name=_STR),
    PROGRESS: c.Struct("phase" / _U32, "reserved" / _U32, "done" / _U64, "total" / _U64),
    WARNING: c.Struct("code" / _STR, "message" / _STR),
    FAILURE: c.Struct(
        "step" / _U32,
        "errno" / _I32,
        "tid" / _U32,
        "address" / _U64,
        "step_name" / _STR,
        "code" / _STR,
        "sentence" / _STR,
    ),
    FINAL: c.Struct(
        "allocations" / _U64,
        "bytes" / _U64,
        "leaked" / _U64,
        "leaked_bytes" / _U64,
        "direct" / _U64,
        "direct_bytes" / _U64,
    ),
    NAMES: _array(address=_U64, module=_STR, symbol=_STR, offset=_U64),
    CONTENTS: _array(leak=_U32, bytes=_BYTES),
    DOUBTS: _array(first=_U32, count=_U32, reason=_U32),
    BLOCK: c.Struct("asked" / _U64, "start" / _U64, "size" / _U64, "state" / _U32, "arena" / _U32),
    REFERENCES: _REFERENCES,
    CHAIN: _REFERENCES,
    WORD_OWNERS: _array(first=_U32, count=_U32, tid=_U32),
    CONFIRMATION: c.Struct(
        "every_ns" / _U64,
        "pauses_ns" / c.PrefixedArray(_U32, _U64),
        "vanished" / c.Array(2, _U64),
        "recent" / c.Array(2, _U64),
    ),
}
"""Records of a few rows. The others are columns, with a function each."""

COLUMN_TYPES: dict[int, np.dtype[Any]] = {SHAPES: np.dtype("u1"), DIGESTS: np.dtype("<u8")}
"""Records that hold one column."""

_REGION = np.dtype([("start", "<u8"), ("end", "<u8"), ("kind", "<u4"), ("arena", "<u4")])


class Frame(NamedTuple):
    """One record as it came: its type and its undecoded payload."""

    type: int
    payload: bytes


def encode(record_type: int, value: Any) -> bytes:
    """Return one framed record. `value` is what construct builds from (dicts and lists)."""
    payload = RECORDS[record_type].build(value)
    return frame_bytes(Frame(record_type, payload))


def frame_bytes(frame: Frame) -> bytes:
    """Return a frame as it travels: header and payload."""
    return bytes(FRAME.build({"type": frame.type, "length": len(frame.payload)})) + frame.payload


def hello_bytes() -> bytes:
    """Return the 16 bytes that every stream begins with."""
    fields = {"magic": MAGIC, "version": VERSION, "byte_order": LITTLE_ENDIAN}
    return bytes(HELLO.build({**fields, "word_size": WORD_SIZE, "reserved": 0}))


def frames(source: BinaryIO) -> Iterator[Frame]:
    """Yield the records of a stream as they arrive, the last one being Final or Failure.

    Raises:
        StreamError: it is none of ours, of another version, damaged, or cut off.
    """
    _check_hello(source.read(HELLO.sizeof()))
    count = 0
    while True:
        header = source.read(FRAME.sizeof())
        if len(header) < FRAME.sizeof():
            raise errors.StreamError(f"the stream was cut off after {count} records")
        kind, length = (int(n) for n in np.frombuffer(header, "<u4"))
        if length > MAX_PAYLOAD:
            raise errors.StreamError(
                f"the stream is damaged: record {count} claims to be {length} bytes long"
            )
        payload = source.read(length)
        if len(payload) < length:
            raise errors.StreamError(f"the stream was cut off inside record {count}")
        yield Frame(kind, payload)
        if kind in LAST_RECORDS:
            break
        count += 1
    if source.read(1):
        raise errors.StreamError("the stream is damaged: it goes on after its last record")


def _check_hello(raw: bytes) -> None:
    if not raw:
        raise errors.StreamError("the stream is empty")
    if raw[: len(MAGIC)] != MAGIC[: len(raw)]:
        raise errors.StreamError("this is not a reachscan stream: it begins differently")
    if len(raw) < HELLO.sizeof():
        raise errors.StreamError("the stream was cut off inside its first 16 bytes")
    hello = HELLO.parse(raw)
    if hello.byte_order != LITTLE_ENDIAN or hello.word_size != WORD_SIZE:
        raise errors.StreamError("the stream comes from a machine that is not 64-bit little-endian")
    if hello.version != VERSION:
        raise errors.StreamError(
            f"the stream has version {hello.version} but this reachscan reads version {VERSION}",
            "read it with the version of reachscan that wrote it",
        )


def parse(frame: Frame) -> Any:
    """Decode one record other than the bulk columns.

    Raises:
        StreamError: the payload is shorter than its fields say.
    """
    try:
        return RECORDS[frame.type].parse(frame.payload)
    except (c.ConstructError, OverflowError) as error:
        raise _damaged(frame) from error


def parse_regions(frame: Frame) -> model.Regions:
    """Decode a regions record into columns.

    Raises:
        StreamError: the payload has not the length that its count says.
    """
    (count,) = _counts(frame, 1)
    if len(frame.payload) != 4 + count * _REGION.itemsize:
        raise _damaged(frame)
    rows = np.frombuffer(frame.payload, _REGION, count, 4)
    return model.Regions(*(np.ascontiguousarray(rows[column]) for column in _REGION.names or ()))


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


def parse_leaks(frame: Frame) -> LeakColumns:
    """Decode a leaks record into columns that share the memory of its payload.

    Raises:
        StreamError: the payload has not the length that its counts say.
    """
    count, width = _counts(frame, 2)
    if len(frame.payload) != 8 + count * (20 + 8 * width):
        raise _damaged(frame)
    raw = frame.payload
    return LeakColumns(
        np.frombuffer(raw, "<u8", count, 8),
        np.frombuffer(raw, "<u8", count, 8 + 8 * count),
        np.frombuffer(raw, "<u4", count, 8 + 16 * count),
        np.frombuffer(raw, "<u8", count * width, 8 + 20 * count).reshape(count, width),
    )


def parse_column(frame: Frame) -> NDArray[Any]:
    """Decode a record of one column (`COLUMN_TYPES`).

    Raises:
        StreamError: the payload has not the length that its count says.
    """
    kind = COLUMN_TYPES[frame.type]
    (count,) = _counts(frame, 1)
    if len(frame.payload) != 4 + count * kind.itemsize:
        raise _damaged(frame)
    column: NDArray[Any] = np.frombuffer(frame.payload, kind, count, 4).copy()
    return column


def parse_kinds(frame: Frame) -> model.Kinds:
    """Decode a record of kinds of live blocks into columns.

    Raises:
        StreamError: the payload has not the length that its counts say.
    """
    count, width = _counts(frame, 2)
    if len(frame.payload) != 8 + count * (40 + 8 * width):
        raise _damaged(frame)
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


def _counts(frame: Frame, how_many: int) -> list[int]:
    if len(frame.payload) < 4 * how_many:
        raise _damaged(frame)
    return [int(n) for n in np.frombuffer(frame.payload, "<u4", how_many)]


def _damaged(frame: Frame) -> errors.StreamError:
    return errors.StreamError(
        f"the stream is damaged: a record of type {frame.type} cannot be read"
    )
