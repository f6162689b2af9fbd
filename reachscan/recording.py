"""Puts the records of one stream together into a recording, and checks that they add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan import errors, model, wire

LARGEST_BLOCK = 1 << 47
"""No x86_64 process has a block as large as this, bytes."""

Progressed = Callable[[model.Progress], None]


def decode(source: Iterable[wire.Frame], on_progress: Progressed | None = None) -> model.Recording:
    """Turn the records of one complete stream into a recording.

    Args:
        source: what `wire.frames` yields.
        on_progress: called for each progress record.

    Raises:
        StreamError: a record is damaged or missing, or the totals do not add up.
        ReachscanError: the stream ends with a failure record; the class depends on its code.
    """
    decoder = _Decoder(on_progress)
    for frame in source:
        decoder.feed(frame)
    return decoder.finish()


class _Decoder:
    def __init__(self, on_progress: Progressed | None) -> None:
        self._on_progress = on_progress
        self._single: dict[int, Any] = {}
        self._rows: dict[int, list[Any]] = {kind: [] for kind in wire.RECORDS}
        self._regions: list[model.Regions] = []
        self._kinds: list[model.Kinds] = []
        self._leaks = _LeakCollector()

    def feed(self, frame: wire.Frame) -> None:
        if frame.type == wire.LEAKS:
            self._leaks.add(wire.parse_leaks(frame))
        elif frame.type in wire.COLUMN_TYPES:
            self._leaks.add_column(frame.type, wire.parse_column(frame))
        elif frame.type == wire.REGIONS:
            self._regions.append(wire.parse_regions(frame))
        elif frame.type == wire.KINDS:
            self._kinds.append(wire.parse_kinds(frame))
        elif frame.type in wire.RECORDS:
            self._feed_small(frame.type, wire.parse(frame))

    def _feed_small(self, kind: int, body: Any) -> None:
        if kind == wire.PROGRESS:
            if self._on_progress:
                phase = wire.PHASES.get(body.phase, f"phase {body.phase}")
                self._on_progress(model.Progress(phase, body.done, body.total))
        elif kind == wire.FAILURE:
            raise errors.failure(
                body.code,
                body.sentence,
                step=body.step_name,
                number=body.errno,
                tid=body.tid,
                address=body.address,
            )
        elif isinstance(body, list):
            self._single[kind] = True
            self._rows[kind].extend(body)
        elif kind in (wire.HEAP, wire.WARNING):
            self._rows[kind].append(body)
        else:
            self._single[kind] = body

    def finish(self) -> model.Recording:
        for kind, what in ((wire.TARGET, "target"), (wire.SNAPSHOT, "snapshot")):
            if kind not in self._single:
                raise errors.StreamError(f"the stream is damaged: it has no {what} record")
        leaks = self._leaks.finish(self._rows[wire.DOUBTS])
        totals = model.Totals(**_fields(self._single[wire.FINAL]))
        _check_totals(leaks, totals)
        rows = self._rows
        target, snapshot = self._single[wire.TARGET], self._single[wire.SNAPSHOT]
        return model.Recording(
            target=model.Target(**{**_fields(target), "command": tuple(target.command)}),
            mappings=tuple(model.Mapping(**_fields(row)) for row in rows[wire.MAPPINGS]),
            modules=tuple(model.Module(**_fields(row)) for row in rows[wire.MODULES]),
            threads=tuple(model.Thread(**_fields(row)) for row in rows[wire.THREADS]),
            snapshot=model.Snapshot(
                **{**_fields(snapshot), "phases": tuple((p.phase, p.ns) for p in snapshot.phases)}
            ),
            heaps=tuple(model.Heap(**_fields(row)) for row in rows[wire.HEAP]),
            regions=_join_regions(self._regions),
            leaks=leaks,
            types={row.vtable: row.name for row in rows[wire.TYPES]},
            warnings=tuple(model.Warning(**_fields(row)) for row in rows[wire.WARNING]),
            names=self._names(),
            contents=_contents(rows[wire.CONTENTS], leaks),
            totals=totals,
            kinds=_join_kinds(self._kinds),
            block=self._block(),
            references=tuple(model.Reference(**_fields(row)) for row in rows[wire.REFERENCES]),
            chain=tuple(model.Reference(**_fields(row)) for row in rows[wire.CHAIN]),
            confirmation=self._confirmation(),
            word_owners=tuple(model.WordOwner(**_fields(row)) for row in rows[wire.WORD_OWNERS]),
        )

    def _names(self) -> dict[int, model.Name] | None:
        if wire.NAMES not in self._single:
            return None
        rows = self._rows[wire.NAMES]
        return {row.address: model.Name(row.module, row.symbol, row.offset) for row in rows}

    def _block(self) -> model.Block | None:
        block = self._single.get(wire.BLOCK)
        return None if block is None else model.Block(**_fields(block))

    def _confirmation(self) -> model.Confirmation | None:
        body = self._single.get(wire.CONFIRMATION)
        if body is None:
            return None
        return model.Confirmation(
            body.every_ns, tuple(body.pauses_ns), tuple(body.vanished), tuple(body.recent)
        )


class _LeakCollector:
    """Joins leaks records, and keeps one word of an indirect leak, for nothing reads the rest."""

    def __init__(self) -> None:
        self._chunks: list[wire.LeakColumns] = []
        self._first_words: list[model.Addresses] = []
        self._columns: dict[int, list[NDArray[Any]]] = {kind: [] for kind in wire.COLUMN_TYPES}
        self._count = 0

    def add(self, chunk: wire.LeakColumns) -> None:
        if self._chunks and chunk.words.shape[1] != self._chunks[0].words.shape[1]:
            raise errors.StreamError("the stream is damaged: its leaks differ in leading words")
        is_head = chunk.parent == model.DIRECT
        own_position = np.arange(self._count, self._count + len(chunk.parent))
        if bool(np.any(~is_head & (chunk.parent >= own_position))):
            raise errors.StreamError("the stream is damaged: a leak precedes what it hangs below")
        if bool(np.any(chunk.size >= LARGEST_BLOCK)):
            raise errors.StreamError("the stream is damaged: a block is impossibly large")
        self._count += len(chunk.parent)
        words = chunk.words
        first = words[:, 0].copy() if words.shape[1] else np.zeros(len(words), np.uint64)
        self._first_words.append(first)
        # Copies let go of the payload, most of which is words of indirect leaks.
        self._chunks.append(
            wire.LeakColumns(
                chunk.address.copy(), chunk.size.copy(), chunk.parent.copy(), words[is_head]
            )
        )

    def add_column(self, kind: int, values: NDArray[Any]) -> None:
        self._columns[kind].append(values)

    def finish(self, doubts: list[Any]) -> model.Leaks:
        shape, digest = self._column(wire.SHAPES), self._column(wire.DIGESTS)
        if not self._chunks:
            empty = np.empty(0, np.uint64)
            return model.Leaks(
                empty,
                empty,
                empty.astype(np.uint32),
                empty.astype(np.int64),
                empty.reshape(0, 0),
                empty,
                shape,
                shape,
                digest,
            )
        address, size, parent, words = (
            np.concatenate(column) for column in zip(*self._chunks, strict=True)
        )
        self._chunks.clear()
        return model.Leaks(
            address,
            size,
            parent,
            np.flatnonzero(parent == model.DIRECT),
            words,
            np.concatenate(self._first_words),
            shape if len(shape) else np.zeros(self._count, np.uint8),
            _reasons(doubts, self._count),
            digest,
        )

    def _column(self, kind: int) -> NDArray[Any]:
        column = np.concatenate([np.zeros(0, wire.COLUMN_TYPES[kind]), *self._columns[kind]])
        if len(column) not in (0, self._count):
            raise errors.StreamError("the stream is damaged: its columns differ in length")
        return column


def _reasons(doubts: list[Any], count: int) -> NDArray[np.uint8]:
    reasons = np.zeros(count, np.uint8)
    for doubt in doubts:
        if doubt.first + doubt.count > count or doubt.reason > model.MANGLED:
            raise errors.StreamError(
                "the stream is damaged: it doubts a leak that it does not hold"
            )
        part = reasons[doubt.first : doubt.first + doubt.count]
        part[part == model.DEFINITE] = doubt.reason
    return reasons


def _check_totals(leaks: model.Leaks, totals: model.Totals) -> None:
    found = (
        len(leaks.address),
        int(leaks.size.sum(dtype=np.uint64)),
        len(leaks.heads),
        int(leaks.size[leaks.heads].sum(dtype=np.uint64)),
    )
    stated = (totals.leaked, totals.leaked_bytes, totals.direct, totals.direct_bytes)
    if found != stated:
        raise errors.StreamError(
            f"the stream is damaged: it holds {found[0]} leaks of {found[1]} bytes "
            f"but states {stated[0]} of {stated[1]} bytes"
            if found[:2] != stated[:2]
            else f"the stream is damaged: it holds {found[2]} direct leaks of {found[3]} bytes "
            f"but states {stated[2]} of {stated[3]} bytes"
        )


def _join_regions(chunks: list[model.Regions]) -> model.Regions:
    wide, narrow = np.empty(0, np.uint64), np.empty(0, np.uint32)
    return model.Regions(
        np.concatenate([wide, *(chunk.start for chunk in chunks)]),
        np.concatenate([wide, *(chunk.end for chunk in chunks)]),
        np.concatenate([narrow, *(chunk.kind for chunk in chunks)]),
        np.concatenate([narrow, *(chunk.arena for chunk in chunks)]),
    )


def _join_kinds(chunks: list[model.Kinds]) -> model.Kinds | None:
    if not chunks:
        return None
    names = [field.name for field in fields(model.Kinds)]
    if len({chunk.words.shape[1] for chunk in chunks}) > 1:
        raise errors.StreamError("the stream is damaged: its kinds differ in leading words")
    sums = [column for chunk in chunks for column in (chunk.count, chunk.bytes)]
    if any(bool(np.any(column >= LARGEST_BLOCK)) for column in sums):
        raise errors.StreamError("the stream is damaged: a kind of blocks is impossibly large")
    return model.Kinds(*(np.concatenate([getattr(chunk, n) for chunk in chunks]) for n in names))


def _contents(rows: list[Any], leaks: model.Leaks) -> dict[int, bytes]:
    contents = {row.leak: row.bytes for row in rows}
    if contents and max(contents) >= len(leaks.address):
        raise errors.StreamError("the stream is damaged: contents of a leak that it does not hold")
    return contents


def _fields(body: Any) -> dict[str, Any]:
    return {key: value for key, value in body.items() if not key.startswith("_")}
