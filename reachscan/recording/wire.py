"""The stream of the native helper: its records and how to read and write them.

Mirrors native/wire/protocol.hpp; docs/wire-format.md draws every record. The stream comes from a
process that read foreign memory, or from a file of unknown origin: nothing in it is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from reachscan import errors
from reachscan.recording.lean_construct import construct as c
from reachscan.recording.wire_rows import BLOB, I32, TEXT, U32, U64, List, Rows

MAGIC = b"\x89RSCAN\r\n"
VERSION = 1
LITTLE_ENDIAN = 1
WORD_SIZE = 8
MAX_PAYLOAD = 64 << 20

TARGET, MAPPINGS, MODULES, THREADS, SNAPSHOT, HEAP, REGIONS, LEAKS = range(1, 9)
TYPES, PROGRESS, WARNING, FAILURE, FINAL, NAMES, CONTENTS = range(9, 16)
DOUBTS, SHAPES, DIGESTS, KINDS, BLOCK, REFERENCES, CHAIN, WORD_OWNERS = range(16, 24)
CONFIRMATION, SIGHTINGS, ABSENT, WITHHELD = range(24, 28)
LAST_RECORDS = (FAILURE, FINAL)

COLLECT = 6
PHASES = {1: "freeze", 2: "quiesce", 3: "clone", 4: "enumerate", 5: "mark", COLLECT: "collect"}


class Hello(NamedTuple):
    """What a stream begins with."""

    magic: bytes
    version: int
    byte_order: int
    word_size: int
    reserved: int


class Header(NamedTuple):
    """What a record begins with; `length` bytes follow."""

    type: int
    length: int


HELLO = struct.Struct("<8sHBBI")
HEADER = struct.Struct("<II")
COUNT = struct.Struct("<I")


def _struct(**fields: c.Construct) -> c.Construct:
    # Without what construct adds of its own: the fields alone, by name and as attributes.
    return c.ExprAdapter(
        c.Struct(**fields),
        lambda row, _: c.Container((name, row[name]) for name in fields),
        lambda row, _: row,
    )


_REFERENCE = {"slot": U64, "value": U64, "holder": U32, "index": U32, "block": U64, "size": U64}
_REFERENCES = Rows(**_REFERENCE)

RECORDS: dict[int, c.Construct] = {
    TARGET: _struct(
        pid=U32,
        threads=U32,
        started=U64,
        name=TEXT,
        exe=TEXT,
        command=List(TEXT),
    ),
    MAPPINGS: Rows(start=U64, end=U64, offset=U64, inode=U64, permissions=U32, path=TEXT),
    MODULES: Rows(base=U64, path=TEXT, build_id=BLOB),
    THREADS: Rows(tid=U32, stack_pointer=U64, program_counter=U64, thread_pointer=U64, name=TEXT),
    SNAPSHOT: _struct(
        method=TEXT,
        reason=TEXT,
        pause_ns=U64,
        attempts=U32,
        drain_runs=U32,
        phases=Rows(phase=TEXT, ns=U64),
    ),
    HEAP: _struct(allocator=TEXT, allocations=U64, bytes=U64, arenas=U32, regions=U32),
    TYPES: Rows(vtable=U64, name=TEXT),
    PROGRESS: _struct(phase=U32, reserved=U32, done=U64, total=U64),
    WARNING: _struct(code=TEXT, message=TEXT),
    FAILURE: _struct(
        step=U32,
        errno=I32,
        tid=U32,
        address=U64,
        step_name=TEXT,
        code=TEXT,
        sentence=TEXT,
    ),
    FINAL: _struct(
        allocations=U64,
        bytes=U64,
        leaked=U64,
        leaked_bytes=U64,
        direct=U64,
        direct_bytes=U64,
    ),
    NAMES: Rows(address=U64, module=TEXT, symbol=TEXT, offset=U64),
    CONTENTS: Rows(leak=U32, bytes=BLOB),
    DOUBTS: Rows(first=U32, count=U32, reason=U32),
    BLOCK: _struct(asked=U64, start=U64, size=U64, state=U32, arena=U32),
    REFERENCES: _REFERENCES,
    CHAIN: _REFERENCES,
    SIGHTINGS: Rows(form=U32, about=U64, **_REFERENCE),
    WORD_OWNERS: Rows(first=U32, count=U32, tid=U32),
    ABSENT: Rows(start=U64, end=U64),
    WITHHELD: _struct(withheld=U32),
    CONFIRMATION: _struct(
        every_ns=U64,
        pauses_ns=List(U64),
        vanished=c.Array(2, U64),
        recent=c.Array(2, U64),
    ),
}
"""Records of a few rows. The others are columns: `wire_columns.py` reads them."""

COLUMNS = (LEAKS, KINDS, SHAPES, DIGESTS)
"""Records that are columns; SHAPES and DIGESTS are one of leaks each."""

ONCE = (TARGET, SNAPSHOT, BLOCK, CONFIRMATION, WITHHELD)
"""Records that a stream holds one of at most."""

MOST_ROWS = {
    TYPES: (1 << 16) + 2,
    CONTENTS: 1 << 12,
    MAPPINGS: 1 << 20,
    MODULES: 1 << 20,
    THREADS: 1 << 22,
    ABSENT: 1 << 20,
}
"""No stream has more rows of these: the helper sends no more, and the kernel allows no more."""

LONGEST_TYPE = 1023
"""Characters of the mangled name of a type, as long as the helper sends them."""

MOST_SMALL_RECORDS = 1 << 13
"""So many records of columns may be small; the others have a thousand rows at least."""

REGION_SIZE = 24
"""Bytes of one row of a regions record."""


class Frame(NamedTuple):
    """One record as it came: its type and its undecoded payload."""

    type: int
    payload: bytes


def encode(record_type: int, value: Any) -> bytes:
    """Return one framed record. `value` is made of dicts and lists, as its layout says.

    Raises:
        construct.ConstructError: it does not fit into the layout.
    """
    return frame_bytes(Frame(record_type, RECORDS[record_type].build(value)))


def row_frames(record_type: int, rows: Iterable[Any]) -> Iterator[Frame]:
    """Yield rows in as many records as it takes, one at least, none of them too long.

    Raises:
        construct.ConstructError: a row does not fit into the layout.
    """
    layout = RECORDS[record_type]
    batch: list[bytes] = []
    length = COUNT.size
    for row in rows:
        raw = layout.row_bytes(row)
        if length + len(raw) > MAX_PAYLOAD:
            yield Frame(record_type, COUNT.pack(len(batch)) + b"".join(batch))
            batch, length = [], COUNT.size
        batch.append(raw)
        length += len(raw)
    yield Frame(record_type, COUNT.pack(len(batch)) + b"".join(batch))


def frame_bytes(frame: Frame) -> bytes:
    """Return a frame as it travels: header and payload."""
    return HEADER.pack(*Header(frame.type, len(frame.payload))) + frame.payload


def hello_bytes() -> bytes:
    """Return the 16 bytes that every stream begins with."""
    return HELLO.pack(*Hello(MAGIC, VERSION, LITTLE_ENDIAN, WORD_SIZE, 0))


def frames(source: BinaryIO) -> Iterator[Frame]:
    """Yield the records of a stream as they arrive, the last one being Final or Failure.

    Raises:
        StreamError: it is none of ours, of another version, damaged, or cut off.
    """
    _check_hello(source.read(HELLO.size))
    count = 0
    while True:
        header = source.read(HEADER.size)
        if len(header) < HEADER.size:
            raise errors.StreamError(f"the stream was cut off after {count} records")
        kind, length = Header(*HEADER.unpack(header))
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
    if len(raw) < HELLO.size:
        raise errors.StreamError("the stream was cut off inside its first 16 bytes")
    hello = Hello(*HELLO.unpack(raw))
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
    except c.ConstructError as error:
        raise damaged(frame) from error


def parse_counts(frame: Frame, how_many: int) -> tuple[int, ...]:
    """Return the counts that a record of columns begins with.

    Raises:
        StreamError: the payload is too short for them.
    """
    counts = struct.Struct(f"<{how_many}I")
    if len(frame.payload) < counts.size:
        raise damaged(frame)
    return counts.unpack_from(frame.payload)


def parse_regions(frame: Frame) -> bytes:
    """Return the rows of a regions record, see `model.Recording.region_rows`.

    Raises:
        StreamError: the payload has not the length that its count says.
    """
    (count,) = parse_counts(frame, 1)
    if len(frame.payload) != 4 + count * REGION_SIZE:
        raise damaged(frame)
    return frame.payload[4:]


def damaged(frame: Frame) -> errors.StreamError:
    """Return the error that says that a record makes no sense."""
    return errors.StreamError(
        f"the stream is damaged: a record of type {frame.type} cannot be read"
    )
