"""Streams of scans that saw certain leaks, to compare and merge."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import streams
from streams import HEAP_START, Stream

from reachscan.recording import model, wire, wire_columns
from reachscan.recording.zip_equal import zip_equal


@dataclass(frozen=True)
class Seen:
    """A leaked block as one scan sees it; `parent` is an address, 0 for none."""

    address: int
    size: int = 32
    parent: int = 0
    digest: int = 0
    reason: int = model.DEFINITE


def stream(*leaks: Seen, **facts: Any) -> list[wire.Frame]:
    """Return the records of a scan that saw these blocks, owners before what they own."""
    position = {leak.address: i for i, leak in enumerate(leaks)}
    count = len(leaks)
    words = np.zeros((count, 8), "<u8")
    words[:, 0] = [leak.address + 1 for leak in leaks]  # tells whose words they are
    columns = wire_columns.LeakColumns(
        np.array([leak.address for leak in leaks], "<u8"),
        np.array([leak.size for leak in leaks], "<u8"),
        np.array([position.get(leak.parent, model.DIRECT) for leak in leaks], "<u4"),
        words,
    )
    doubts = [
        {"first": i, "count": 1, "reason": leak.reason}
        for i, leak in enumerate(leaks)
        if leak.reason
    ]
    contents = [{"leak": i, "bytes": bytes([i % 256])} for i in range(min(count, 1000))]
    encoded = b"".join(
        [
            wire.hello_bytes(),
            *Stream(**facts).facts(),
            wire.frame_bytes(wire.Frame(wire.LEAKS, wire_columns.leaks_payload(columns))),
            *(
                wire.frame_bytes(wire.Frame(kind, streams.column_payload(letter, values)))
                for kind, letter, values in (
                    (wire.SHAPES, "u1", [leak.size % 8 for leak in leaks]),
                    (wire.DIGESTS, "<u8", [leak.digest for leak in leaks]),
                )
            ),
            wire.encode(wire.DOUBTS, doubts),
            wire.encode(wire.CONTENTS, contents),
            *(
                wire.encode(wire.WARNING, {"code": c, "message": m})
                for c, m in facts.get("warnings", ())
            ),
            streams.final(columns),
        ]
    )
    return list(wire.frames(io.BytesIO(encoded)))


def blocks(recording: model.Recording) -> dict[int, int | None]:
    """Return the address of each leak and of its owner, checked for being in order."""
    leaks = recording.leaks
    found: dict[int, int | None] = {}
    for i, (address, parent) in enumerate(zip_equal(leaks.address, leaks.parent)):
        assert int(leaks.first_word[i]) == int(address) + 1
        assert recording.contents.keys() <= set(range(len(leaks.address)))
        found[int(address)] = None if parent == model.DIRECT else int(leaks.address[parent])
    return found


def in_structures(leaks: list[Seen]) -> list[Seen]:
    """Return leaks with each structure in one piece, as the sweeper sends them."""
    by_address = {leak.address: leak for leak in leaks}

    def head(leak: Seen) -> int:
        return head(by_address[leak.parent]) if leak.parent else leak.address

    heads = [leak.address for leak in leaks if not leak.parent]
    return sorted(leaks, key=lambda leak: heads.index(head(leak)))


A, B, C, D = (HEAP_START + n * 0x100 for n in range(1, 5))
