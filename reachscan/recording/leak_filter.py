"""Rewrites a stream with only some of its leaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.recording import model, wire, wire_columns
from reachscan.recording.decode import decode
from reachscan.recording.zip_equal import zip_equal

_ROWS = 1 << 16
"""Leaks in one record."""


class LeakFilter:
    """Writes some of a stream's leaks, with the records about them, in a new order."""

    def __init__(self, leaks: model.Leaks, kept: model.Flags, reason: NDArray[np.uint8]) -> None:
        """Take the leaks, which of them to keep, and the reason to doubt each."""
        self._leaks = leaks
        owner = _nearest_kept_ancestor(leaks.parent, kept)
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
                    columns = map(np.concatenate, zip_equal(*origins))
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
            # Digests are no longer needed, and could reveal the contents of small blocks.
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
        return frame_of(wire.CONTENTS, rows)

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
        return frame_of(wire.FINAL, {**wire.parse(frame), **leaked})


def only_recorded(
    frames: Sequence[wire.Frame], known: frozenset[tuple[int, int]] | None = None
) -> Iterator[wire.Frame]:
    """Yield the records of a scan, with only the leaks whose allocation was recorded.

    Args:
        frames: the records of the scan.
        known: address and size of the leaks from before that; None if nobody looked.
    """
    recording = decode(iter(frames))
    leaks, origins = recording.leaks, recording.origins
    kept = np.zeros(len(leaks.address), bool)
    if origins is not None:
        kept = origins.recorded
    chosen = LeakFilter(leaks, kept, leaks.reason)
    yield from chosen.frames(frames[:-1])
    if left_out := int((~kept).sum()):
        message = (
            f"{left_out} leaked blocks are left out whose allocation was not recorded: "
            "`reachscan PID` reports them, too"
        )
        yield frame_of(wire.WARNING, {"code": model.NOT_RECORDED, "message": message})
    unseen = _new_leaks(leaks, ~kept, known) if known is not None else 0
    if unseen > int(kept.sum()):
        names = ", ".join(dict.fromkeys(heap.allocator for heap in recording.heaps))
        message = (
            f"{unseen} leaked blocks of the sizes that leak are new, and their allocation was not "
            "recorded: they are older than the recording, or the recorder does not see where "
            f"they are allocated (the allocators are {names})"
        )
        yield frame_of(wire.WARNING, {"code": model.UNRECORDED, "message": message})
    yield chosen.final(frames[-1])


def _new_leaks(leaks: model.Leaks, among: model.Flags, known: frozenset[tuple[int, int]]) -> int:
    """Count leaks that are certain and not known, of the sizes of those that are, if any are."""
    certain = among & (leaks.reason == model.DEFINITE)
    blocks = set(zip_equal(leaks.address[certain].tolist(), leaks.size[certain].tolist()))
    sizes = {size for _, size in known}
    return sum(1 for block in blocks - known if not sizes or block[1] in sizes)


def _nearest_kept_ancestor(parent: NDArray[np.uint32], kept: model.Flags) -> model.Indexes:
    """Return the nearest kept ancestor of each leak, -1 if there is none."""
    owner = np.where(parent == model.DIRECT, -1, parent.astype(np.int64))
    while True:
        passed_over = np.flatnonzero((owner >= 0) & ~kept[owner])
        if not len(passed_over):
            return owner
        # Owners have moved up as well, so the distance doubles with each round.
        owner[passed_over] = owner[owner[passed_over]]


def _with_their_heads(owner: model.Indexes, kept: model.Flags) -> model.Indexes:
    """Return the kept leaks in their order, but each structure in one piece."""
    head = np.where(owner < 0, np.arange(len(owner)), owner)
    while True:
        further = head[head]
        if np.array_equal(further, head):
            break
        head = further
    which = np.flatnonzero(kept)
    return which[np.argsort(head[which], kind="stable")]


def _whole_structures(reason: NDArray[np.uint8], is_head: model.Flags) -> NDArray[np.uint8]:
    """Doubt whole structures, for the lowest-numbered reason among their blocks."""
    if not len(reason):
        return reason
    doubt = reason - np.uint8(1)  # makes DEFINITE the largest number
    heads = np.flatnonzero(is_head)
    spans = np.diff(np.append(heads, len(reason)))
    strongest: NDArray[np.uint8] = np.minimum.reduceat(doubt, heads)
    whole: NDArray[np.uint8] = np.repeat(strongest, spans) + np.uint8(1)
    return whole


def _runs(reason: NDArray[np.uint8]) -> Iterator[tuple[int, int, int]]:
    """Yield the doubts: ranges of leaks with the same reason."""
    edges = np.flatnonzero(np.diff(reason, prepend=np.uint8(0), append=np.uint8(0)))
    starts = np.unique(np.append(edges, 0))
    for first, end in zip(starts.tolist(), starts[1:].tolist()):
        if reason[first] != model.DEFINITE:
            yield first, end - first, int(reason[first])


def frame_of(kind: int, body: Any) -> wire.Frame:
    """Return a record that holds a few rows."""
    return wire.Frame(kind, wire.RECORDS[kind].build(body))
