"""What private memory is counted as: heap, or what else; and when that is worth a warning."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
import streams
from loading import load_leaks
from streams import BSS, DATA, HEAP_END, HEAP_START, Stream

from reachscan.naming.private_memory import WARNING, PrivateMemory, private_memory
from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.origins import Recorder
from reachscan.reports import Selection, leaks_text
from reachscan.result import LeakScan

PAGE, MIB = 0x1000, 1 << 20
HEAP = HEAP_END - HEAP_START
MODULE = BSS + PAGE - DATA
POOL, STACK, OTHER_STACK, SHARED = (0x7F10_0000_0000 + (n << 32) for n in range(4))
MAIN_STACK = 0x7FFF_0000_0000
RW = model.READ | model.WRITE


def anonymous(start: int, size: int, permissions: int = RW, path: str = "") -> model.Mapping:
    return model.Mapping(start, start + size, 0, 0, permissions, path)


def stream(
    *more: model.Mapping, absent: Sequence[tuple[int, int]] = (), threads: bytes = b""
) -> Stream:
    rows = [{"start": start, "end": end} for start, end in absent]
    extra = wire.encode(wire.ABSENT, rows) + threads
    return Stream(mappings=(*streams.MAPPINGS, *more), extra=extra)


def loaded(made: Stream) -> model.Recording:
    return decode(wire.frames(io.BytesIO(made.encoded())))


def measured(made: Stream) -> PrivateMemory | None:
    return private_memory(loaded(made))


def test_a_stream_that_does_not_tell() -> None:
    assert measured(Stream()) is None


def test_heap_and_modules() -> None:
    memory = measured(stream())
    assert memory is not None
    assert memory.heap == HEAP
    assert memory.rest == {"anonymous": 0, "stack": 0, "module": MODULE, "file": 0}
    assert [(part.start, part.kind) for part in memory.largest] == [
        (DATA, "module"),
        (BSS, "module"),
    ]


def test_what_was_never_written_does_not_count() -> None:
    absent = [
        (HEAP_END - PAGE, HEAP_END),
        (POOL - PAGE, POOL + PAGE),
        (POOL + 2 * PAGE, POOL + 3 * PAGE),
        (POOL + 7 * PAGE, POOL + 8 * PAGE),
    ]
    memory = measured(stream(anonymous(POOL, 8 * PAGE), absent=absent))
    assert memory is not None
    assert (memory.heap, memory.rest["anonymous"]) == (HEAP - PAGE, 5 * PAGE)


def test_tables_of_a_recorder_are_none_of_the_program() -> None:
    tables = [anonymous(POOL, PAGE), anonymous(POOL + PAGE, 2 * PAGE)]
    recording = loaded(stream(*tables, anonymous(POOL + 3 * PAGE, PAGE)))
    recorder = Recorder._make([POOL, 3 * PAGE, *[0] * 14, ()])
    memory = private_memory(recording._replace(recorder=recorder))
    assert memory is not None and memory.rest["anonymous"] == PAGE


def test_kinds() -> None:
    worker = {
        **streams.THREAD,
        "tid": 4712,
        "stack_pointer": STACK + PAGE,
        "thread_pointer": OTHER_STACK + PAGE,
    }
    memory = measured(
        stream(
            anonymous(POOL, PAGE),
            anonymous(STACK, 2 * PAGE),
            anonymous(OTHER_STACK, 3 * PAGE),
            anonymous(SHARED, MIB, RW | model.SHARED),
            anonymous(SHARED + MIB, MIB, model.READ),
            anonymous(MAIN_STACK, 4 * PAGE, path="[stack]"),
            model.Mapping(MAIN_STACK + MIB, MAIN_STACK + MIB + PAGE, 0, 9, RW, "/tmp/file"),
            threads=wire.encode(wire.THREADS, [worker]),
        )
    )
    assert memory is not None
    assert memory.rest == {
        "anonymous": PAGE,
        "stack": 9 * PAGE,
        "module": MODULE,
        "file": PAGE,
    }


@pytest.mark.parametrize(
    ("pool", "unwritten", "warned"),
    [(4 * HEAP, 0, True), (4 * HEAP - PAGE, 0, False), (MIB, HEAP, False), (16 * MIB, HEAP, True)],
)
def test_much_memory_beside_little_heap_is_a_warning(
    tmp_path: Path, pool: int, unwritten: int, warned: bool
) -> None:
    absent = [(HEAP_END - unwritten, HEAP_END)]
    path = tmp_path / "made.rsc"
    path.write_bytes(stream(anonymous(POOL, pool), absent=absent).encoded())
    result = load_leaks(path)
    assert [w.code for w in result.recording.warnings] == [WARNING] * warned
    assert tells_of_the_rest(result) == (result.memory is not None and pool > HEAP - unwritten)


def test_the_rest_is_told_if_it_is_more_than_half(tmp_path: Path) -> None:
    told = []
    for pool in (HEAP - MODULE, HEAP - MODULE + PAGE):
        path = tmp_path / "made.rsc"
        path.write_bytes(stream(anonymous(POOL, pool)).encoded())
        told.append(tells_of_the_rest(load_leaks(path)))
    assert told == [False, True]


def tells_of_the_rest(result: LeakScan) -> bool:
    text = " ".join(" ".join(leaks_text.lines(result, Selection())).split())
    return "not for leaks: " in text
