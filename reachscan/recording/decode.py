"""Assembles the records of a stream into a recording, and checks that they add up."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from reachscan import errors
from reachscan.recording import model, wire
from reachscan.recording.architectures import ARCHITECTURES
from reachscan.recording.zip_equal import zip_equal

if TYPE_CHECKING:
    from reachscan.recording.columns import Columns
    from reachscan.recording.origins import RecordedMapping, Recorder

_NEEDED = ((wire.BEGIN, "hello"), (wire.TARGET, "target"), (wire.SNAPSHOT, "snapshot"))
Progressed = Callable[[model.Progress], None]
Numbered = TypeVar("Numbered", bound=enum.IntEnum)


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


_NO_PYTHON = "Python objects were asked for"
"""How the sentence begins that says that there is no interpreter to look into."""


def failure_of(body: Any) -> errors.ReachscanError:
    """Return the error that a failure record describes."""
    error = errors.failure(
        body.code,
        body.sentence,
        step=body.step_name,
        number=body.errno,
        tid=body.tid,
        address=body.address,
    )
    if body.sentence.startswith(_NO_PYTHON):
        error.next_step = "leave out --python"
    return error


class _Decoder:
    def __init__(self, on_progress: Progressed | None) -> None:
        self._on_progress = on_progress
        self._single: dict[int, Any] = {}
        self._rows: dict[int, list[Any]] = {kind: [] for kind in wire.RECORDS}
        self._regions: list[bytes] = []
        self._columns: Columns | None = None

    def feed(self, frame: wire.Frame) -> None:
        if frame.type == wire.BEGIN:
            self._single[wire.BEGIN] = wire.parse_hello(frame)
        if frame.type in wire.MAX_ROWS:
            self._count_rows(frame)
        if frame.type == wire.REGIONS:
            self._regions.append(wire.parse_regions(frame))
        elif frame.type in wire.RECORDS:
            self._feed_small_records(frame.type, wire.parse(frame))
        elif frame.type in wire.COLUMNS:
            self._bulk().add(frame)

    def _count_rows(self, frame: wire.Frame) -> None:
        """Refuse too many rows before they are read."""
        (count,) = wire.parse_counts(frame, 1)
        if len(self._rows[frame.type]) + count > wire.MAX_ROWS[frame.type]:
            raise errors.StreamError(
                f"the stream is damaged: it has too many rows of type {frame.type}"
            )

    def _bulk(self) -> Columns:
        """Return the collector of columns; it needs numpy, which most scans do without."""
        if self._columns is None:
            from reachscan.recording.columns import Columns

            self._columns = Columns()
        return self._columns

    def _feed_small_records(self, kind: int, body: Any) -> None:
        if kind == wire.PROGRESS:
            if self._on_progress:
                phase = wire.PHASES.get(body.phase, f"phase {body.phase}")
                self._on_progress(model.Progress(phase, body.done, body.total))
        elif kind == wire.FAILURE:
            raise failure_of(body)
        elif kind in wire.ONCE and kind in self._single:
            raise errors.StreamError(f"the stream is damaged: it has two records of type {kind}")
        elif isinstance(body, list):
            self._single[kind] = True
            self._rows[kind].extend(body)
        elif kind in (wire.HEAP, wire.WARNING):
            self._rows[kind].append(body)
        else:
            self._single[kind] = body

    def finish(self) -> model.Recording:
        for kind, what in _NEEDED:
            if kind not in self._single:
                raise errors.StreamError(f"the stream is damaged: it has no {what} record")
        leaks = self._columns.leaks(self._rows[wire.DOUBTS]) if self._columns else None
        totals = model.Totals(**self._single[wire.FINAL])
        _check_totals(leaks, totals)
        rows = self._rows
        kinds = self._columns.kinds(totals) if self._columns else None
        target, snapshot = self._single[wire.TARGET], self._single[wire.SNAPSHOT]
        return model.Recording(
            target=model.Target(**{**target, "command": tuple(target.command)}),
            mappings=tuple(model.Mapping(*row) for row in rows[wire.MAPPINGS]),
            modules=tuple(model.Module(*row) for row in rows[wire.MODULES]),
            threads=tuple(model.Thread(*row) for row in rows[wire.THREADS]),
            snapshot=model.Snapshot(
                **{**snapshot, "phases": tuple((p.phase, p.ns) for p in snapshot.phases)}
            ),
            heaps=tuple(model.Heap(**row) for row in rows[wire.HEAP]),
            region_rows=b"".join(self._regions),
            some_leaks=leaks,
            warnings=(*(model.Warning(**row) for row in rows[wire.WARNING]), *self._doubts()),
            names=self._names(),
            contents=_contents(rows[wire.CONTENTS], totals),
            totals=totals,
            kinds=kinds,
            block=self._block(),
            references=tuple(_reference(*row) for row in rows[wire.REFERENCES]),
            chain=tuple(_reference(*row) for row in rows[wire.CHAIN]),
            sightings=tuple(_sighting(*row) for row in rows[wire.SIGHTINGS]),
            confirmation=self._confirmation(),
            moments=self._moments(),
            word_owners=tuple(model.WordOwner(*row) for row in rows[wire.WORD_OWNERS]),
            absent=self._absent(),
            withheld=self._withheld(),
            **self._of_hello(),
            host=self._host(),
            **self._of_types(),
            **self._where_from(leaks, kinds),
        )

    def _doubts(self) -> Iterator[model.Warning]:
        """Yield warnings about the recorder, which are not in the stream."""
        if wire.RECORDER in self._single:
            from reachscan.recording import origins

            for sentence in origins.doubts(self._recorder()):
                yield model.Warning("stacks-missing", sentence)
        python = self._single.get(wire.INTERPRETER)
        if python and not python.understood:
            sentence = origins.doubt_of_python(python.version)
            yield model.Warning("python-frames-missing", sentence)

    def _recorder(self) -> Recorder:
        from reachscan.recording.origins import LATEST_MS, Recorder

        body = self._single[wire.RECORDER]
        if body.now_ms >= LATEST_MS:
            raise errors.StreamError("the stream is damaged: it was recorded for too long")
        return Recorder(**{**body, "sizes": tuple((row.first, row.last) for row in body.sizes)})

    def _where_from(self, leaks: model.Leaks | None, kinds: model.Kinds | None) -> dict[str, Any]:
        """Return what is known about the origins of blocks: in most processes, nothing."""
        if wire.RECORDER not in self._single:
            # The allocator may have been asked for stacks.
            return self._columns.where_from(leaks, kinds) if self._columns else {}
        from reachscan.recording.origins import ClosedModule, PythonFunction, RecordedThread

        threads, modules = self._rows[wire.RECORDED_THREADS], self._rows[wire.CLOSED_MODULES]
        functions = self._rows[wire.PYTHON_FUNCTIONS]
        return {
            "recorder": self._recorder(),
            "recorded_threads": {row.thread: RecordedThread(row.tid, row.name) for row in threads},
            "closed_modules": {row.module: ClosedModule(*row[1:]) for row in modules},
            "python_functions": {row.function: PythonFunction(*row[1:]) for row in functions},
            **(self._columns.where_from(leaks, kinds) if self._columns else {}),
            "recorded_mappings": self._mappings(),
        }

    def _mappings(self) -> tuple[RecordedMapping, ...] | None:
        if wire.RECORDED_MAPPINGS not in self._single:
            return None
        from reachscan.recording.origins import Mapped, RecordedMapping

        rows = self._rows[wire.RECORDED_MAPPINGS]
        stacks = self._bulk().stacks_of([row.node for row in rows]) if rows else []
        return tuple(
            RecordedMapping(r.start, r.end, _member(Mapped, r.kind), stack, r.thread, r.time_ms)
            for r, stack in zip_equal(rows, stacks)
        )

    def _names(self) -> dict[int, model.Name] | None:
        if wire.NAMES not in self._single:
            return None
        rows = self._rows[wire.NAMES]
        return {row.address: model.Name(row.module, row.symbol, row.offset) for row in rows}

    def _types(self, kind: int) -> dict[int, str]:
        types = dict(self._rows[kind])
        if any(len(name) > wire.MAX_TYPE_LENGTH for name in types.values()):
            raise errors.StreamError("the stream is damaged: the name of a type is too long")
        return types

    def _block(self) -> model.Block | None:
        block = self._single.get(wire.BLOCK)
        if block is None:
            return None
        return model.Block(**{**block, "state": _member(model.BlockState, block.state)})

    def _of_types(self) -> dict[str, Any]:
        """Return the names of types, and what the stream says about Python objects."""
        body = self._single.get(wire.COLLECTIBLE)
        return {
            "types": self._types(wire.TYPES),
            "python_types": self._types(wire.PYTHON_TYPES),
            "collectible": None if body is None else model.Collectible(**body),
        }

    def _absent(self) -> tuple[tuple[int, int], ...] | None:
        if wire.ABSENT not in self._single:
            return None
        return tuple((row.start, row.end) for row in self._rows[wire.ABSENT])

    def _host(self) -> model.Host | None:
        host = self._single.get(wire.HOST)
        return None if host is None else model.Host(**host)

    def _of_hello(self) -> dict[str, Any]:
        machine, page_size = self._single[wire.BEGIN]
        return {"machine": machine, "page_size": page_size, "word": ARCHITECTURES[machine].word}

    def _withheld(self) -> bool:
        body = self._single.get(wire.WITHHELD)
        return body is not None and body.withheld != 0

    def _confirmation(self) -> model.Confirmation | None:
        body = self._single.get(wire.CONFIRMATION)
        if body is None:
            return None
        return model.Confirmation(
            body.every_ns,
            tuple(body.pauses_ns),
            (body.vanished, body.vanished_bytes),
            (body.recent, body.recent_bytes),
        )

    def _moments(self) -> model.Moments | None:
        body = self._single.get(wire.MOMENTS)
        if body is None:
            return None
        return model.Moments(
            body.every_ns,
            tuple(body.pauses_ns),
            (body.hidden, body.hidden_bytes),
            (body.withdrawn, body.withdrawn_bytes),
            body.rested != 0,
        )


def _sighting(form: int, about: int, *word: int) -> model.Sighting:
    if form not in model.REASONS:
        raise errors.StreamError("the stream is damaged: a word is in an unknown form")
    return model.Sighting(model.Reason(form), about, _reference(*word))


def _reference(slot: int, value: int, holder: int, *rest: int) -> model.Reference:
    return model.Reference(slot, value, _member(model.Holder, holder), *rest)


def _member(numbered: type[Numbered], number: int) -> Numbered:
    try:
        return numbered(number)
    except ValueError as error:
        raise errors.StreamError(f"the stream is damaged: {error}") from error


def _check_totals(leaks: model.Leaks | None, totals: model.Totals) -> None:
    if totals.leaked > totals.allocations or totals.leaked_bytes > totals.bytes:
        raise errors.StreamError(
            f"the stream is damaged: it states {totals.leaked} leaks of {totals.leaked_bytes} "
            f"bytes in a heap of {totals.allocations} blocks and {totals.bytes} bytes"
        )
    found = (0, 0, 0, 0)
    if leaks:
        direct = leaks.size[leaks.heads]
        found = (len(leaks.size), int(leaks.size.sum()), len(direct), int(direct.sum()))
    stated = (totals.leaked, totals.leaked_bytes, totals.direct, totals.direct_bytes)
    if found != stated:
        raise errors.StreamError(
            f"the stream is damaged: it holds {found[0]} leaks of {found[1]} bytes "
            f"but states {stated[0]} of {stated[1]} bytes"
            if found[:2] != stated[:2]
            else f"the stream is damaged: it holds {found[2]} direct leaks of {found[3]} bytes "
            f"but states {stated[2]} of {stated[3]} bytes"
        )


def _contents(rows: list[Any], totals: model.Totals) -> dict[int, bytes]:
    contents = {row.leak: row.bytes for row in rows}
    if contents and max(contents) >= totals.leaked:
        raise errors.StreamError("the stream is damaged: contents of a leak that it does not hold")
    return contents
