"""Reads the text dumps of native heaps that Android writes, versions 1.0 to 1.2.

They list live blocks by size and stack, without a verdict. A dump becomes a recording of the heap.
Like every other file, it is not trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from reachscan import errors
from reachscan.recording import model
from reachscan.recording.architectures import ADDRESS_END
from reachscan.recording.origin_columns import entries
from reachscan.recording.origins import DEEPEST, NOT_RECORDED, Origins, Stacks, call_before
from reachscan.recording.zip_equal import zip_equal

VERSIONS = ("1.0", "1.1", "1.2")

_FIRST = re.compile(r"Android Native Heap Dump v(\d{1,9}\.\d{1,9})\s*")
_TOTAL = re.compile(r"Total memory: (\d{1,19})\s*")
_RECORD = re.compile(r"z (\d+)\s+sz\s+(\d{1,19})\s+num\s+(\d{1,19})\s+bt((?: [0-9a-f]{1,16})*)\s*")
# Names of functions may contain quotes, as those of C++ literals do: `operator"" _ms`.
_INFO = re.compile(r'"([^"]*)" ([0-9a-f]{1,16}) "(.*)" ([0-9a-f]{1,16})')
_MAPPING = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([r-])([w-])([x-])([sp]) ([0-9a-f]{1,16}) \S+ (\d{1,19})"
    r"(?: +(.*))?"
)
_BITS = (model.READ, model.WRITE, model.EXECUTE)
_METHOD = "dump"


class _Record(NamedTuple):
    """Blocks of one size and one stack, innermost call first."""

    size: int
    count: int  # type: ignore[assignment]  # hides what tuples have
    stack: tuple[int, ...]


class _Dump:
    """The contents of a dump, line by line."""

    def __init__(self) -> None:
        self.records: list[_Record] = []
        self.names: dict[int, model.Name] = {}
        self.mappings: list[model.Mapping] = []
        self.total: int | None = None
        self._extent = 0

    def read(self, lines: Iterator[str]) -> None:
        """Take all lines after the first.

        Raises:
            StreamError: a line makes no sense, or the end is missing.
        """
        for number, line in enumerate(lines, 2):
            if line.startswith("MAPS"):
                return self._read_mappings(lines)
            if line.startswith("z "):
                self._add(_RECORD.fullmatch(line), number)
            elif line.startswith("  bt_info") and self.records:
                self._name(self.records[-1].stack, line.strip().removeprefix("bt_info"))
            elif total := _TOTAL.fullmatch(line):
                self.total = int(total[1])
        raise errors.StreamError("the dump was cut off: it has no mappings")

    def _add(self, found: re.Match[str] | None, number: int) -> None:
        stack = tuple(int(pc, 16) for pc in found[4].split()[:DEEPEST]) if found else ()
        if found is None:
            raise errors.StreamError(f"the dump is damaged: line {number} is no record")
        size, count = int(found[2]), int(found[3])
        self._extent += max(size, 1) * max(count, 1)
        if self._extent >= ADDRESS_END:
            raise errors.StreamError(
                f"the dump is damaged: at line {number}, its blocks exceed an address space"
            )
        self.records.append(_Record(size, count, stack))

    def _name(self, stack: Sequence[int], info: str) -> None:
        known = [_INFO.fullmatch(frame) for frame in info.strip(" {}").split("} {")]
        if len(known) != len(stack):
            return
        for pc, frame in zip_equal(stack, known):
            if frame and frame[3] and int(frame[4], 16):
                name = model.Name(frame[1], frame[3], int(frame[4], 16) - 1)
                self.names[call_before(pc)] = name

    def _read_mappings(self, lines: Iterator[str]) -> None:
        for line in lines:
            if line.rstrip() == "END":
                return
            # Android says so in one line if it could not read them.
            if found := _MAPPING.fullmatch(line.rstrip("\n")):
                start, end, *flags, shared, offset, inode, path = found.groups()
                bits = sum(bit for bit, c in zip_equal(_BITS, flags) if c != "-")
                bits |= model.SHARED * (shared == "s")
                place = (int(start, 16), int(end, 16), int(offset, 16), int(inode))
                self.mappings.append(model.Mapping(*place, bits, path or ""))
        raise errors.StreamError("the dump was cut off: it has no END")


def read(file: BinaryIO) -> model.Recording:
    """Return the live heap that a dump describes.

    Raises:
        StreamError: it is damaged or truncated.
    """
    lines = (line.decode("utf-8", "backslashreplace") for line in file)
    first = _FIRST.fullmatch(next(lines, ""))
    if first is None:
        raise errors.StreamError("the dump is damaged: its first line names no version")
    dump = _Dump()
    dump.read(lines)
    records, doubts = dump.records, list(_doubts(dump, first[1]))
    if first[1] == "1.0" and not _adds_up(dump):
        # What they have there may be the length of the stack.
        records = [record._replace(count=1) for record in records]
    return _recording(dump, records, doubts, os.fstat(file.fileno()).st_mtime_ns, first[1])


def _adds_up(dump: _Dump) -> bool:
    return dump.total == sum(record.size * record.count for record in dump.records)


def _doubts(dump: _Dump, version: str) -> Iterator[model.Warning]:
    if version not in VERSIONS:
        message = f"the dump has version {version}, which is read as if it were {VERSIONS[-1]}"
        yield model.Warning("unknown-dump-version", message)
    if version != "1.0" and not _adds_up(dump):
        message = f"the dump states {dump.total} bytes in all, and its records add up to others"
        yield model.Warning("dump-inconsistent", message)


def _recording(
    dump: _Dump,
    records: Sequence[_Record],
    doubts: Sequence[model.Warning],
    written: int,
    version: str,
) -> model.Recording:
    count = np.array([record.count for record in records], np.uint64)
    size = np.array([record.size for record in records], np.uint64)
    origins, stacks = _origins(records, size)
    none = np.zeros(len(records), np.uint32)
    nowhere = np.zeros(len(records), np.uint64)
    words = np.empty((len(records), 0), np.uint64)
    allocations, amount = int(count.sum()), int((count * size).sum())
    reason = f"Android Native Heap Dump v{version}"
    mappings = sorted(dump.mappings)
    return model.Recording(
        target=model.Target(0, 0, written, "heap dump", "", ()),
        mappings=tuple(mappings),
        modules=(),
        threads=(),
        snapshot=model.Snapshot(_METHOD, reason, 0, 1, 0, ()),
        heaps=(),
        region_rows=b"",
        some_leaks=None,
        types={},
        warnings=tuple(doubts),
        # Files of the device; this machine's files are different ones.
        names=dump.names,
        contents={},
        totals=model.Totals(allocations, amount, 0, 0, 0, 0),
        kinds=model.Kinds(count, count * size, size, nowhere, none, none, words, nowhere[:0]),
        withheld=True,
        kind_origins=origins,
        stacks=stacks,
    )


def _origins(records: Sequence[_Record], size: model.Addresses) -> tuple[Origins, Stacks]:
    """Return the stacks of the records in the form that a recorder gives them."""
    nodes: dict[tuple[int, int], int] = {}
    innermost = []
    for record in records:
        at = -1
        for call in reversed(record.stack):
            at = nodes.setdefault((at, call), len(nodes))
        innermost.append(at)
    parent = np.array([above for above, _ in nodes], np.int64)
    pc = np.array([call for _, call in nodes], np.uint64)
    stack_of, stacks = entries(parent, pc, np.zeros(len(nodes), np.uint32))
    stack = np.append(stack_of, -1)[np.array(innermost, np.int64)]
    thread = np.full(len(records), NOT_RECORDED, np.uint32)
    never = np.zeros(len(records), np.uint64)
    return Origins(stack, thread, never, never, size), stacks
