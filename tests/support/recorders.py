"""Makes the records that a scan of a recorded process has, for streams that are made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from reachscan.recording import wire
from reachscan.recording.origins import NOT_RECORDED

STARTED = 1_700_000_000_000_000_000
HEADER = {
    "start": 0x7E00_0000_0000,
    "bytes": 1 << 20,
    "way_in": 2,
    "stacks": 2,
    "depth": 32,
    "stopped": 0,
    "stopped_after_ms": 0,
    "started": STARTED,
    "now_ms": 10_000,
    "min_size": 0,
    "sample": 0,
    "stop_at": 0,
    "modules_filtered": 0,
    "threads_filtered": 0,
    "records": 9,
    "lost": 0,
    "sizes": [],
}

Stack = Sequence[int]
"""Return addresses, innermost first."""


@dataclass
class Recorded:
    """What a recorder knows; `origins` has a stack, thread, time and size for each block."""

    origins: Sequence[tuple[Stack, int, int, int] | None]
    threads: dict[int, tuple[int, str]] = field(default_factory=lambda: {1: (77, "worker")})
    header: dict[str, object] = field(default_factory=dict)
    closed: Sequence[tuple[int, int, str, bytes]] = ()
    closed_calls: Sequence[int] = ()
    about: int = wire.ORIGINS

    def encoded(self) -> bytes:
        """Return all records; those about blocks come behind the ones that they are about."""
        nodes: dict[tuple[int, int], int] = {}
        rows: list[tuple[int, int, int, int]] = []
        for origin in self.origins:
            if origin is None:
                rows.append((0, NOT_RECORDED, 0, 0))
                continue
            stack, *rest = origin
            node = 0
            for pc in reversed(stack):
                node = nodes.setdefault((node, pc), len(nodes) + 1)
            rows.append((node, rest[0], rest[1], rest[2]))
        innermost, thread, time, size = ([row[i] for row in rows] for i in range(4))
        times = (time, time) if self.about == wire.KIND_ORIGINS else (time,)
        of_blocks = columns("I", innermost, thread) + columns("Q", *times, size)
        numbers = nodes.values()
        closed = self.closed[0][0] if self.closed else 0
        modules = [closed if pc in self.closed_calls else 0 for _, pc in nodes]
        of_nodes = columns("I", numbers, [above for above, _ in nodes], modules)
        of_nodes += columns("Q", [pc for _, pc in nodes])
        threads = [(number, tid, name) for number, (tid, name) in self.threads.items()]
        return b"".join(
            (
                frame(self.about, len(rows), of_blocks),
                wire.encode(wire.RECORDER, HEADER | self.header),
                frame(wire.STACK_NODES, len(nodes), of_nodes),
                wire.encode(wire.RECORDED_THREADS, threads),
                wire.encode(wire.CLOSED_MODULES, list(self.closed)),
            )
        )


def columns(letter: str, *values: Iterable[int]) -> bytes:
    kind = {"I": "<u4", "Q": "<u8"}[letter]
    return b"".join(np.array([*column], kind).tobytes() for column in values)


def frame(kind: int, count: int, rest: bytes) -> bytes:
    return wire.frame_bytes(wire.Frame(kind, wire.COUNT.pack(count) + rest))
