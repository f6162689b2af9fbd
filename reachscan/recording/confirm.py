"""Keeps of several scans of one process what was unreferenced in all of them.

A pointer may hide for a moment where no scan sees it, and a block may be freed just after. What is
lost stays lost, and nobody writes to it. What is kept is one more stream, that of the last scan
without the rest: whoever reads it need not know that there were others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan import errors
from reachscan.recording import model, wire, wire_columns

_ROWS = 1 << 16
"""Leaks in one record."""


@dataclass(frozen=True)
class _Sighting:
    """The leaks of one scan, by address."""

    address: model.Addresses
    size: model.Addresses
    digest: model.Addresses
    reason: NDArray[np.uint8]

    @classmethod
    def of(cls, leaks: model.Leaks) -> _Sighting:
        order = np.argsort(leaks.address)
        return cls(
            leaks.address[order], leaks.size[order], leaks.digest[order], leaks.reason[order]
        )

    def find(self, address: model.Addresses, size: model.Addresses) -> model.Indexes:
        """Return where leaks of other scans are here, -1 if they are not or have another size."""
        if not len(self.address):
            return np.full(len(address), -1, np.int64)
        at = np.minimum(np.searchsorted(self.address, address), len(self.address) - 1)
        same = (self.address[at] == address) & (self.size[at] == size)
        return np.where(same, at, -1)


def _program(recording: model.Recording) -> tuple[str, int]:
    """Return what another exec() would change: the program, or where the kernel put the vdso."""
    vdso = (mapping.start for mapping in recording.mappings if mapping.path == "[vdso]")
    return recording.target.exe, next(vdso, 0)


def _distinct(sightings: Sequence[_Sighting]) -> tuple[model.Addresses, model.Addresses]:
    """Return addresses and sizes of all blocks that were seen, each pair once."""
    none = np.empty(0, np.uint64)
    address = np.concatenate([none, *(sighting.address for sighting in sightings)])
    size = np.concatenate([none, *(sighting.size for sighting in sightings)])
    order = np.lexsort((size, address))
    address, size = address[order], size[order]
    first = np.ones(len(order), bool)
    first[1:] = (address[1:] != address[:-1]) | (size[1:] != size[:-1])
    return address[first], size[first]


class Confirmer:
    """Takes the streams of several scans, made with digests, and returns one."""

    def __init__(self, every_ns: int) -> None:
        """Begin without a scan; they are `every_ns` nanoseconds apart."""
        self._every_ns = every_ns
        self._earlier: list[_Sighting] = []
        self._warnings: dict[str, model.Warning] = {}
        self._pauses: list[int] = []
        self._frames: list[wire.Frame] = []
        self._leaks: model.Leaks | None = None
        self._program: tuple[str, int] | None = None

    def add(self, frames: Sequence[wire.Frame], recording: model.Recording) -> None:
        """Take the next scan: its records and what they say.

        Raises:
            StreamError: it was not made with digests.
            TargetGoneError: the process has become another program since the one before.
        """
        if self._program not in (None, program := _program(recording)):
            raise errors.TargetGoneError(
                f"process {recording.target.pid} became another program between the scans"
            )
        self._program = program
        if len(recording.leaks.digest) != len(recording.leaks.address):
            raise errors.StreamError("the scan says nothing of the contents of blocks")
        if self._leaks is not None:
            self._earlier.append(_Sighting.of(self._leaks))
        self._frames, self._leaks = list(frames), recording.leaks
        self._pauses.append(recording.snapshot.pause_ns)
        for warning in recording.warnings:
            self._warnings.setdefault(warning.code, warning)

    def confirmed(self) -> Iterator[wire.Frame]:
        """Yield the records of the last scan, with no other leaks than those of all scans."""
        assert self._leaks is not None
        kept, reason = self._compare(self._leaks)
        chosen = _Filter(self._leaks, kept, reason)
        yield from chosen.frames(self._frames[:-1])
        said = [wire.parse(frame).code for frame in self._frames if frame.type == wire.WARNING]
        for code, warning in self._warnings.items():
            if code not in said:
                row = {"code": code, "message": f"in one of the scans: {warning.message}"}
                yield _frame(wire.WARNING, row)
        yield _frame(wire.CONFIRMATION, self._summary(self._leaks, kept))
        yield chosen.final(self._frames[-1])

    def _compare(self, leaks: model.Leaks) -> tuple[model.Flags, NDArray[np.uint8]]:
        """Return which leaks of the last scan were in all, and why to doubt them."""
        kept = np.ones(len(leaks.address), bool)
        changed = np.zeros(len(leaks.address), bool)
        reason = leaks.reason.copy()
        for sighting in self._earlier:
            at = sighting.find(leaks.address, leaks.size)
            kept &= at >= 0
            seen = np.flatnonzero(at >= 0)
            changed[seen] |= sighting.digest[at[seen]] != leaks.digest[seen]
            doubted = reason[seen] == model.DEFINITE
            reason[seen[doubted]] = sighting.reason[at[seen[doubted]]]
        reason[changed & (reason == model.DEFINITE)] = model.CHANGED
        return kept, reason

    def _summary(self, leaks: model.Leaks, kept: model.Flags) -> dict[str, Any]:
        address, size = _distinct(self._earlier)
        gone = size[_Sighting.of(leaks).find(address, size) < 0]
        recent = leaks.size[~kept]
        return {
            "every_ns": self._every_ns,
            "pauses_ns": self._pauses,
            "vanished": len(gone),
            "vanished_bytes": int(gone.sum()),
            "recent": len(recent),
            "recent_bytes": int(recent.sum()),
        }


class _Filter:
    """Writes some of the leaks of a stream, and what was said of them, in a new order."""

    def __init__(self, leaks: model.Leaks, kept: model.Flags, reason: NDArray[np.uint8]) -> None:
        self._leaks = leaks
        owner = _nearest_kept(leaks.parent, kept)
        self._order = _with_their_heads(owner, kept)
        position = np.full(len(kept), -1, np.int64)
        position[self._order] = np.arange(len(self._order))
        self._position = position
        owner = owner[self._order]
        self._parent = np.where(owner < 0, model.DIRECT, position[owner]).astype("<u4")
        self._reason = _whole_structures(reason[self._order], self._parent == model.DIRECT)

    def frames(self, frames: Sequence[wire.Frame]) -> Iterator[wire.Frame]:
        """Yield records, with those about leaks replaced."""
        records = (frame for frame in frames if frame.type == wire.LEAKS)
        chunks = [wire_columns.parse_leaks(record).words for record in records]
        origins = [wire_columns.parse_origins(f) for f in frames if f.type == wire.ORIGINS]
        about_leaks = (wire.LEAKS, wire.DOUBTS, wire.ORIGINS, *wire_columns.COLUMN_TYPES)
        written = False
        for frame in frames:
            if frame.type == wire.LEAKS and not written:
                written = True
                yield from self._leak_frames(np.concatenate(chunks))
                if origins:
                    columns = map(np.concatenate, zip(*origins, strict=True))
                    yield from self._origin_frames(wire_columns.OriginColumns(*columns))
            if frame.type == wire.CONTENTS:
                yield self._contents(frame)
            elif frame.type not in about_leaks:
                yield frame

    def _leak_frames(self, words: model.Addresses) -> Iterator[wire.Frame]:
        leaks = self._leaks
        for start in range(0, len(self._order), _ROWS):
            rows = slice(start, start + _ROWS)
            which = self._order[rows]
            columns = wire_columns.LeakColumns(
                leaks.address[which], leaks.size[which], self._parent[rows], words[which]
            )
            yield wire.Frame(wire.LEAKS, wire_columns.leaks_payload(columns))
            # The digests have been compared. Contents of small blocks could be told by them.
            yield wire.Frame(wire.SHAPES, wire_columns.column_payload(leaks.shape[which]))
            if len(leaks.object_type):
                objects = leaks.object_type[which]
                yield wire.Frame(wire.OBJECTS, wire_columns.column_payload(objects))
        yield from wire.row_frames(wire.DOUBTS, _runs(self._reason))

    def _origin_frames(self, origins: wire_columns.OriginColumns) -> Iterator[wire.Frame]:
        for start in range(0, len(self._order), _ROWS):
            which = self._order[start : start + _ROWS]
            some = wire_columns.OriginColumns._make(column[which] for column in origins)
            yield wire.Frame(wire.ORIGINS, wire_columns.origins_payload(some))

    def _contents(self, frame: wire.Frame) -> wire.Frame:
        rows = [
            {"leak": int(self._position[row.leak]), "bytes": row.bytes}
            for row in wire.parse(frame)
            if self._position[row.leak] >= 0
        ]
        return _frame(wire.CONTENTS, rows)

    def final(self, frame: wire.Frame) -> wire.Frame:
        """Return the final record, with the totals of what is written."""
        sizes = self._leaks.size[self._order]
        direct = sizes[self._parent == model.DIRECT]
        leaked = {
            "leaked": len(sizes),
            "leaked_bytes": int(sizes.sum()),
            "direct": len(direct),
            "direct_bytes": int(direct.sum()),
        }
        return _frame(wire.FINAL, {**wire.parse(frame), **leaked})


def _nearest_kept(parent: NDArray[np.uint32], kept: model.Flags) -> model.Indexes:
    """Return for each leak the nearest one above it that is kept, -1 if there is none."""
    owner = np.where(parent == model.DIRECT, -1, parent.astype(np.int64))
    while True:
        passed_over = np.flatnonzero((owner >= 0) & ~kept[owner])
        if not len(passed_over):
            return owner
        # Owners were moved up as well, so that each round doubles the way.
        owner[passed_over] = owner[owner[passed_over]]


def _with_their_heads(owner: model.Indexes, kept: model.Flags) -> model.Indexes:
    """Return the kept leaks, each structure in one piece, in their order otherwise."""
    head = np.where(owner < 0, np.arange(len(owner)), owner)
    while True:
        further = head[head]
        if np.array_equal(further, head):
            break
        head = further
    which = np.flatnonzero(kept)
    return which[np.argsort(head[which], kind="stable")]


def _whole_structures(reason: NDArray[np.uint8], is_head: model.Flags) -> NDArray[np.uint8]:
    """Doubt whole structures: for the reason with the lowest number of any of their blocks."""
    if not len(reason):
        return reason
    doubt = reason - np.uint8(1)  # what is definite becomes the largest number
    heads = np.flatnonzero(is_head)
    spans = np.diff(np.append(heads, len(reason)))
    strongest: NDArray[np.uint8] = np.minimum.reduceat(doubt, heads)
    whole: NDArray[np.uint8] = np.repeat(strongest, spans) + np.uint8(1)
    return whole


def _runs(reason: NDArray[np.uint8]) -> Iterator[tuple[int, int, int]]:
    """Yield the doubts: ranges of leaks that have the same reason."""
    edges = np.flatnonzero(np.diff(reason, prepend=np.uint8(0), append=np.uint8(0)))
    starts = np.unique(np.append(edges, 0))
    for first, end in zip(starts.tolist(), starts[1:].tolist(), strict=False):
        if reason[first] != model.DEFINITE:
            yield first, end - first, int(reason[first])


def _frame(kind: int, body: Any) -> wire.Frame:
    return wire.Frame(kind, wire.RECORDS[kind].build(body))
