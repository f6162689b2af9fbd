"""Makes streams by hand: a small encoder of everything that a helper may send."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reachscan.recording import model, wire, wire_columns
from reachscan.recording.zip_equal import zip_equal

HEAP_START, HEAP_END = 0x5555_5560_0000, 0x5555_6560_0000
LIBRARY = 0x7F00_0000_0000
LIBRARY_PATH = "/usr/lib/libexample.so.1"
CODE, CONSTANTS, DATA, BSS = (LIBRARY + n * 0x1000 for n in (1, 2, 3, 4))

MAPPINGS = (
    model.Mapping(HEAP_START, HEAP_END, 0, 0, model.READ | model.WRITE, "[heap]"),
    model.Mapping(LIBRARY, CODE, 0, 7, model.READ, LIBRARY_PATH),
    model.Mapping(CODE, CONSTANTS, 0x1000, 7, model.READ | model.EXECUTE, LIBRARY_PATH),
    model.Mapping(CONSTANTS, DATA, 0x2000, 7, model.READ, LIBRARY_PATH),
    model.Mapping(DATA, BSS, 0x3000, 7, model.READ | model.WRITE, LIBRARY_PATH),
    model.Mapping(BSS, BSS + 0x1000, 0, 0, model.READ | model.WRITE, ""),
)


HOST = model.Host("farm-7", "0b1c2d3e-0000-4000-8000-feedfacecafe")


@dataclass(frozen=True)
class Leak:
    """A direct leak, what its leading words are, and the sizes of the blocks below it."""

    size: int = 24
    words: Sequence[int] = ()
    below: Sequence[int] = ()
    address: int | None = None


Kind = tuple[int, int, int, int, int, int, list[int]]
"""Count, bytes, size, example, arena, shape and leading words of one kind of live blocks."""


@dataclass
class Stream:
    """A stream under construction; `encoded` makes it."""

    leaks: Sequence[Leak] = ()
    mappings: Sequence[model.Mapping] = MAPPINGS
    modules: Sequence[tuple[int, str, bytes]] = ((LIBRARY, LIBRARY_PATH, b"\1\2\3"),)
    types: dict[int, str] = field(default_factory=dict)
    names: dict[int, model.Name] | None = None
    warnings: Sequence[tuple[str, str]] = ()
    contents: dict[int, bytes] = field(default_factory=dict)
    shapes: Sequence[int] = ()
    doubts: Sequence[tuple[int, int, int]] = ()
    kinds: Sequence[Kind] = ()
    allocator: str = "glibc 2.36"
    pid: int = 4711
    name: str = "victim"
    exe: str = "/usr/bin/victim"
    command: Sequence[str] = ("victim", "--quietly")
    host: model.Host | None = HOST
    extra: bytes = b""
    chunk: int = 1 << 20

    def encoded(self) -> bytes:
        columns = self.columns()
        return b"".join((wire.hello_bytes(), *self.facts(), *self.results(columns), final(columns)))

    def columns(self) -> wire_columns.LeakColumns:
        address: list[int] = []
        size: list[int] = []
        parent: list[int] = []
        words: list[list[int]] = []
        at = HEAP_START + 0x10
        for leak in self.leaks:
            head = len(address)
            for i, own_size in enumerate((leak.size, *leak.below)):
                address.append(leak.address if leak.address is not None and not i else at)
                at += own_size + 16
                size.append(own_size)
                parent.append(head if i else model.DIRECT)
                words.append((list(leak.words if not i else ()) + [0] * 8)[:8])
        return wire_columns.LeakColumns(
            np.array(address, "<u8"),
            np.array(size, "<u8"),
            np.array(parent, "<u4"),
            np.array(words, "<u8").reshape(len(address), 8),
        )

    def facts(self) -> Iterable[bytes]:
        yield wire.encode(
            wire.TARGET,
            {
                "pid": self.pid,
                "threads": 2,
                "started": 1_700_000_000_123_456_789,
                "name": self.name,
                "exe": self.exe,
                "command": list(self.command),
            },
        )
        if self.host:
            yield wire.encode(wire.HOST, self.host._asdict())
        yield wire.encode(wire.MAPPINGS, [m._asdict() for m in self.mappings])
        modules = [{"base": b, "path": p, "build_id": i} for b, p, i in self.modules]
        yield wire.encode(wire.MODULES, modules)
        yield wire.encode(wire.THREADS, [dict(THREAD)])
        yield wire.encode(wire.PROGRESS, {"phase": 5, "reserved": 0, "done": 1, "total": 2})
        yield wire.encode(wire.SNAPSHOT, SNAPSHOT)
        yield self.extra

    def results(self, columns: wire_columns.LeakColumns) -> Iterable[bytes]:
        heap = {**live(columns), "arenas": 1, "regions": 1}
        yield wire.encode(wire.HEAP, {"allocator": self.allocator, **heap})
        region = np.array([HEAP_START, HEAP_END], "<u8").tobytes() + b"\1\0\0\0\0\0\0\0"
        yield wire.frame_bytes(wire.Frame(wire.REGIONS, b"\1\0\0\0" + region))
        for i in range(0, len(columns.address), self.chunk):
            part = columns.slice(i, i + self.chunk)
            yield wire.frame_bytes(wire.Frame(wire.LEAKS, wire_columns.leaks_payload(part)))
        if self.shapes:
            yield wire.frame_bytes(wire.Frame(wire.SHAPES, column_payload("u1", self.shapes)))
        yield wire.encode(
            wire.DOUBTS, [{"first": f, "count": n, "reason": r} for f, n, r in self.doubts]
        )
        yield wire.encode(wire.TYPES, [{"vtable": a, "name": n} for a, n in self.types.items()])
        if self.kinds:
            yield wire.frame_bytes(wire.Frame(wire.KINDS, kinds_payload(self.kinds)))
        contents = [{"leak": i, "bytes": b} for i, b in self.contents.items()]
        yield wire.encode(wire.CONTENTS, contents)
        for code, message in self.warnings:
            yield wire.encode(wire.WARNING, {"code": code, "message": message})
        if self.names is not None:
            names = [{"address": a, **n._asdict()} for a, n in self.names.items()]
            yield wire.encode(wire.NAMES, names)


def column_payload(kind: str, values: Sequence[int]) -> bytes:
    return np.array([len(values)], "<u4").tobytes() + np.array(values, kind).tobytes()


def kinds_payload(kinds: Sequence[Kind]) -> bytes:
    *columns, words = zip_equal(*kinds)
    types = ("<u8", "<u8", "<u8", "<u8", "<u4", "<u4")
    padded = [(list(row) + [0] * 8)[:8] for row in words]
    arrays = [np.array(c, t) for c, t in zip_equal(columns, types)]
    arrays = [np.array([len(kinds), 8], "<u4"), *arrays, np.array(padded, "<u8")]
    return b"".join(array.tobytes() for array in arrays)


THREAD: dict[str, Any] = {
    "tid": 4711,
    "stack_pointer": 0x7FFF_0000_1000,
    "program_counter": CODE,
    "thread_pointer": 0x7F00_1000_0000,
    "name": "main",
}

SNAPSHOT: dict[str, Any] = {
    "method": "clone",
    "reason": "",
    "pause_ns": 412_345,
    "attempts": 1,
    "drain_runs": 0,
    "phases": [{"phase": "freeze", "ns": 100_000}, {"phase": "clone", "ns": 312_000}],
}


def live(columns: wire_columns.LeakColumns) -> dict[str, int]:
    """Return how much is allocated: no less than is leaked."""
    return {
        "allocations": max(1000, len(columns.size)),
        "bytes": max(64000, int(columns.size.sum())),
    }


def final(columns: wire_columns.LeakColumns) -> bytes:
    direct = columns.parent == model.DIRECT
    return wire.encode(
        wire.FINAL,
        {
            **live(columns),
            "leaked": len(columns.address),
            "leaked_bytes": int(columns.size.sum()),
            "direct": int(direct.sum()),
            "direct_bytes": int(columns.size[direct].sum()),
        },
    )


def failure(code: str, sentence: str, **fields: Any) -> bytes:
    """Return a whole stream that tells of a failure."""
    body = {"step": 1, "errno": 0, "tid": 0, "address": 0, "step_name": "freeze", **fields}
    record = wire.encode(wire.FAILURE, {**body, "code": code, "sentence": sentence})
    return wire.hello_bytes() + record
