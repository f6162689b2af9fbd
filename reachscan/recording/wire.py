"""The stream of the native helper: its records and how to read and write them.

Mirrors native/wire/; docs/wire-format.md draws every record. The stream comes from a process that
reads another process's memory, or from a file of unknown origin: nothing in it is trusted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from reachscan import errors
from reachscan.recording.architectures import ARCHITECTURES, X86_64
from reachscan.recording.lean_construct import construct as c
from reachscan.recording.wire_rows import layout_of

MAGIC = b"\x89RSCAN\r\n"
VERSION = 1
LITTLE_ENDIAN = 1
WORD_SIZE = 8
PAGE_KIB = 4
MAX_PAYLOAD = 64 << 20

BEGIN = 0
"""Type of the frame that holds a stream's hello; no record has this type."""

TARGET, MAPPINGS, MODULES, THREADS, SNAPSHOT, HEAP, REGIONS, LEAKS = range(1, 9)
TYPES, PROGRESS, WARNING, FAILURE, FINAL, NAMES, CONTENTS = range(9, 16)
DOUBTS, SHAPES, DIGESTS, KINDS, BLOCK, REFERENCES, CHAIN, WORD_OWNERS = range(16, 24)
CONFIRMATION, SIGHTINGS, ABSENT, WITHHELD = range(24, 28)
RECORDER, ORIGINS, KIND_ORIGINS, STACK_NODES, RECORDED_THREADS, CLOSED_MODULES = range(28, 34)
HOST, INTERPRETER, PYTHON_FUNCTIONS = range(34, 37)
OBJECTS, PYTHON_TYPES, COLLECTIBLE, HOOKS, RECORDED_MAPPINGS, KIND_OBJECTS, MOMENTS = range(37, 44)
LAST_RECORDS = (FAILURE, FINAL)

COLLECT = 6
PHASES = {1: "freeze", 2: "quiesce", 3: "clone", 4: "enumerate", 5: "mark", COLLECT: "collect"}


class Hello(NamedTuple):
    """The start of a stream.

    Attributes:
        machine: the processor, by its number in ELF files.
        page_kib: size of a page. Both are 0 in older streams, which come from x86_64.
    """

    magic: bytes
    version: int
    byte_order: int
    word_size: int
    machine: int
    page_kib: int


class Header(NamedTuple):
    """The header of a record; `length` bytes follow."""

    type: int
    length: int


HELLO = struct.Struct("<8sHBBHH")
HEADER = struct.Struct("<II")
COUNT = struct.Struct("<I")


_REFERENCE = "u64 slot, u64 value, u32 holder, u32 index, u64 block, u64 size"

LAYOUTS = {
    TARGET: "u32 pid, u32 threads, u64 started, str name, str exe, u32 n, n x str command",
    MAPPINGS: "u32 n, n x { u64 start, u64 end, u64 offset, u64 inode, u32 permissions, str path }",
    MODULES: "u32 n, n x { u64 base, str path, raw build_id }",
    THREADS: "u32 n, n x { u32 tid, u64 stack_pointer, u64 program_counter, u64 thread_pointer, "
    "str name }",
    SNAPSHOT: "str method, str reason, u64 pause_ns, u32 attempts, u32 drain_runs, "
    "u32 n, n x { str phase, u64 ns } phases",
    HEAP: "str allocator, u64 allocations, u64 bytes, u32 arenas, u32 regions",
    REGIONS: "u32 n, n x { u64 start, u64 end, u32 kind, u32 arena }",
    LEAKS: "u32 n, u32 w, u64 address[n], u64 size[n], u32 parent[n], u64 words[n*w]",
    TYPES: "u32 n, n x { u64 vtable, str name }",
    PROGRESS: "u32 phase, u32 reserved, u64 done, u64 total",
    WARNING: "str code, str message",
    FAILURE: "u32 step, i32 errno, u32 tid, u64 address, str step_name, str code, str sentence",
    FINAL: "u64 allocations, u64 bytes, u64 leaked, u64 leaked_bytes, u64 direct, u64 direct_bytes",
    NAMES: "u32 n, n x { u64 address, str module, str symbol, u64 offset }",
    CONTENTS: "u32 n, n x { u32 leak, raw bytes }",
    DOUBTS: "u32 n, n x { u32 first, u32 count, u32 reason }",
    SHAPES: "u32 n, u8 shape[n]",
    DIGESTS: "u32 n, u64 digest[n]",
    KINDS: "u32 n, u32 w, u64 count[n], u64 bytes[n], u64 size[n], u64 example[n], u32 arena[n], "
    "u32 shape[n], u64 words[n*w]",
    BLOCK: "u64 asked, u64 start, u64 size, u32 state, u32 arena",
    REFERENCES: f"u32 n, n x {{ {_REFERENCE} }}",
    CHAIN: f"u32 n, n x {{ {_REFERENCE} }}",
    WORD_OWNERS: "u32 n, n x { u32 first, u32 count, u32 tid }",
    CONFIRMATION: "u64 every_ns, u32 n, n x u64 pauses_ns, u64 vanished, u64 vanished_bytes, "
    "u64 recent, u64 recent_bytes",
    SIGHTINGS: f"u32 n, n x {{ u32 form, u64 about, {_REFERENCE} }}",
    ABSENT: "u32 n, n x { u64 start, u64 end }",
    WITHHELD: "u32 withheld",
    RECORDER: "u64 start, u64 bytes, u32 way_in, u32 stacks, u32 depth, u32 stopped, "
    "u64 stopped_after_ms, u64 started, u64 now_ms, u64 min_size, u64 sample, u64 stop_at, "
    "u32 modules_filtered, u32 threads_filtered, u64 records, u64 lost, "
    "u32 n, n x { u64 first, u64 last } sizes",
    ORIGINS: "u32 n, u32 node[n], u32 thread[n], u64 time_ms[n], u64 requested[n]",
    KIND_ORIGINS: "u32 n, u32 node[n], u32 thread[n], u64 oldest_ms[n], u64 newest_ms[n], "
    "u64 requested[n]",
    STACK_NODES: "u32 n, u32 node[n], u32 parent[n], u32 module[n], u64 pc[n]",
    RECORDED_THREADS: "u32 n, n x { u32 thread, u32 tid, str name }",
    CLOSED_MODULES: "u32 n, n x { u32 module, u64 bias, str path, raw build_id }",
    HOST: "str name, str boot_id",
    INTERPRETER: "u32 version, u32 understood",
    PYTHON_FUNCTIONS: "u32 n, n x { u32 function, str name, str file }",
    OBJECTS: "u32 n, u64 type[n]",
    PYTHON_TYPES: "u32 n, n x { u64 type, str name }",
    COLLECTIBLE: "u64 allocations, u64 bytes",
    HOOKS: "u64 pause_ns, u64 thread_pause_ns, u32 slots, u32 modules, u32 others, u64 kept",
    RECORDED_MAPPINGS: "u32 n, n x { u64 start, u64 end, u32 kind, u32 node, u32 thread, "
    "u64 time_ms }",
    KIND_OBJECTS: "u32 n, u64 type[n]",
    MOMENTS: "u64 every_ns, u32 n, n x u64 pauses_ns, u64 hidden, u64 hidden_bytes, u64 withdrawn, "
    "u64 withdrawn_bytes, u32 rested",
}
"""The fields of every record, as in native/wire/records.hpp.

All code that reads or writes records is derived from this table.
"""

COLUMNS = (
    *(LEAKS, SHAPES, DIGESTS, OBJECTS, ORIGINS),
    *(KINDS, KIND_OBJECTS, KIND_ORIGINS, STACK_NODES),
)
"""Records that are columns (see `wire_columns.py`).

SHAPES, DIGESTS and OBJECTS are one column each, about leaks; KIND_OBJECTS is one about kinds.
"""

RECORDS: dict[int, c.Construct] = {
    kind: layout_of(fields) for kind, fields in LAYOUTS.items() if kind not in (*COLUMNS, REGIONS)
}
"""Records that hold a few rows."""

ONCE = (
    *(TARGET, SNAPSHOT, BLOCK, CONFIRMATION, WITHHELD, RECORDER, HOST, INTERPRETER),
    *(COLLECTIBLE, HOOKS, MOMENTS),
)
"""Records that occur at most once in a stream."""

MAX_ROWS = {
    TYPES: (1 << 16) + 2,
    PYTHON_TYPES: 1 << 16,
    CONTENTS: 1 << 12,
    MAPPINGS: 1 << 20,
    MODULES: 1 << 20,
    THREADS: 1 << 22,
    ABSENT: 1 << 20,
    RECORDED_THREADS: 1 << 16,
    CLOSED_MODULES: 1 << 16,
    PYTHON_FUNCTIONS: 1 << 16,
    RECORDED_MAPPINGS: 1 << 16,
}
"""Maximum number of rows in a stream: neither the helper nor the kernel allows more."""

MAX_TYPE_LENGTH = 1023
"""Maximum length of a type's mangled name, as the helper sends it."""

MAX_SMALL_RECORDS = 1 << 13
"""Number of records of columns that may be small; others have at least a thousand rows."""

REGION_SIZE = layout_of(LAYOUTS[REGIONS]).least
"""Bytes of one row of a regions record."""


class Frame(NamedTuple):
    """One record: its type and its payload, not yet decoded."""

    type: int
    payload: bytes


def encode(record_type: int, value: Any) -> bytes:
    """Return one framed record. `value` consists of dicts and lists, as the layout says.

    Raises:
        construct.ConstructError: the value does not fit the layout.
    """
    return frame_bytes(Frame(record_type, RECORDS[record_type].build(value)))


def row_frames(record_type: int, rows: Iterable[Any]) -> Iterator[Frame]:
    """Yield rows in as few records as their maximum length allows, but at least one.

    Raises:
        construct.ConstructError: a row does not fit the layout.
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
    """Return the bytes of a frame: header and payload. The hello has no header."""
    if frame.type == BEGIN:
        return frame.payload
    return HEADER.pack(*Header(frame.type, len(frame.payload))) + frame.payload


def hello_bytes(machine: int = X86_64, page_kib: int = PAGE_KIB) -> bytes:
    """Return the first 16 bytes of a stream."""
    word = ARCHITECTURES[machine].word if machine in ARCHITECTURES else WORD_SIZE
    return HELLO.pack(*Hello(MAGIC, VERSION, LITTLE_ENDIAN, word, machine, page_kib))


def frames(source: BinaryIO) -> Iterator[Frame]:
    """Yield the hello and the records of a stream as they arrive; the last is Final or Failure.

    Raises:
        StreamError: it is not a stream, has another version, is damaged or truncated.
    """
    begin = source.read(HELLO.size)
    _check_hello(begin)
    yield Frame(BEGIN, begin)
    count = 0
    while True:
        header = source.read(HEADER.size)
        if len(header) < HEADER.size:
            raise errors.StreamError(f"the stream was cut off after {count} records")
        kind, length = Header(*HEADER.unpack(header))
        if kind == BEGIN or length > MAX_PAYLOAD:
            what = "begin a stream" if kind == BEGIN else f"be {length} bytes long"
            raise errors.StreamError(f"the stream is damaged: record {count} claims to {what}")
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
    if raw.startswith(b"{"):
        raise errors.StreamError(
            "this is JSON, not a saved scan",
            "if it is a report of reachscan, `diff` and --baseline read it",
        )
    if raw[: len(MAGIC)] != MAGIC[: len(raw)]:
        raise errors.StreamError("this file is not a saved scan")
    if len(raw) < HELLO.size:
        raise errors.StreamError("the stream was cut off inside its first 16 bytes")
    hello = Hello(*HELLO.unpack(raw))
    if hello.byte_order != LITTLE_ENDIAN:
        raise errors.StreamError("the stream comes from a machine that is not little-endian")
    if hello.version != VERSION:
        raise errors.StreamError(
            f"the stream has version {hello.version} but this reachscan reads version {VERSION}",
            "read it with the version of reachscan that wrote it",
        )
    if _machine(hello) not in ARCHITECTURES:
        raise errors.StreamError(
            f"the stream is about a process on another processor (ELF machine {hello.machine})",
            "read it with the version of reachscan that wrote it",
        )
    if hello.word_size != ARCHITECTURES[_machine(hello)].word:
        raise errors.StreamError(
            f"the stream is damaged: it claims that a word has {hello.word_size} bytes"
        )


def _machine(hello: Hello) -> int:
    return hello.machine or X86_64


def parse_hello(frame: Frame) -> tuple[int, int]:
    """Return the processor of a stream, by its number in ELF files, and the page size in bytes."""
    hello = Hello(*HELLO.unpack(frame.payload))
    return _machine(hello), (hello.page_kib or PAGE_KIB) << 10


def parse(frame: Frame) -> Any:
    """Decode one record that has no columns.

    Raises:
        StreamError: the payload is shorter than its fields say.
    """
    try:
        return RECORDS[frame.type].parse(frame.payload)
    except c.ConstructError as error:
        raise damaged(frame) from error


def parse_counts(frame: Frame, how_many: int) -> tuple[int, ...]:
    """Return the counts at the start of a record of columns.

    Raises:
        StreamError: the payload is too short.
    """
    counts = struct.Struct(f"<{how_many}I")
    if len(frame.payload) < counts.size:
        raise damaged(frame)
    return counts.unpack_from(frame.payload)


def parse_regions(frame: Frame) -> bytes:
    """Return the rows of a regions record, see `model.Recording.region_rows`.

    Raises:
        StreamError: the payload's length does not match its count.
    """
    (count,) = parse_counts(frame, 1)
    if len(frame.payload) != 4 + count * REGION_SIZE:
        raise damaged(frame)
    return frame.payload[4:]


def damaged(frame: Frame) -> errors.StreamError:
    """Return the error for a record that makes no sense."""
    return errors.StreamError(
        f"the stream is damaged: a record of type {frame.type} cannot be read"
    )
