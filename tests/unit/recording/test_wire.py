"""The stream: what is written is read back, and whatever is not a whole stream is refused."""

from __future__ import annotations

import contextlib
import io
import struct
from typing import Any

import numpy as np
import pytest
import streams
from construct.core import ConstructError
from hypothesis import given
from hypothesis import strategies as st
from streams import Leak, Stream

from reachscan import errors
from reachscan.recording import model, wire, wire_columns
from reachscan.recording.architectures import X86_64
from reachscan.recording.decode import decode

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def read(raw: bytes) -> model.Recording:
    return decode(wire.frames(io.BytesIO(raw)))


leaks = st.lists(
    st.builds(
        Leak,
        size=st.integers(0, 2**30),
        words=st.lists(u64, max_size=8),
        below=st.lists(st.integers(0, 2**30), max_size=3),
    ),
    max_size=12,
)
mappings = st.lists(st.builds(model.Mapping, u64, u64, u64, u64, u32, texts), max_size=4)


@given(leaks, mappings, texts, st.dictionaries(u64, texts, max_size=3), st.integers(1, 5))
def test_round_trip(
    found: list[Leak], maps: list[model.Mapping], name: str, types: dict[int, str], chunk: int
) -> None:
    stream = Stream(leaks=found, mappings=maps, name=name, types=types, chunk=chunk)
    recording = read(stream.encoded())
    columns = stream.columns()
    direct = columns.parent == model.DIRECT
    assert recording.target.name == name
    assert recording.mappings == tuple(maps)
    assert recording.types == types
    assert np.array_equal(recording.leaks.address, columns.address)
    assert np.array_equal(recording.leaks.size, columns.size)
    assert np.array_equal(recording.leaks.heads, np.flatnonzero(direct))
    if found:
        assert np.array_equal(recording.leaks.words, columns.words[direct])


def test_every_kind_of_record_is_read() -> None:
    name = model.Name("/lib/a.so", "main", 4)
    recording = read(
        Stream(
            leaks=[Leak()],
            names={5: name},
            warnings=[("incomplete-maps", "why")],
            contents={0: b"abc"},
        ).encoded()
    )
    assert recording.names == {5: name}
    assert recording.warnings == (model.Warning("incomplete-maps", "why"),)
    assert recording.contents == {0: b"abc"}
    assert recording.threads == (model.Thread(**streams.THREAD),)
    assert recording.snapshot.phases == (("freeze", 100_000), ("clone", 312_000))
    assert recording.heaps == (model.Heap("glibc 2.36", 1000, 64000, 1, 1),)
    assert recording.regions.start.tolist() == [streams.HEAP_START]
    assert recording.modules[0].build_id == b"\1\2\3"


def test_what_is_known_of_each_leak_is_read() -> None:
    found = [Leak(words=[7], below=[16]), Leak(size=4, words=[9]), Leak(words=[8])]
    stream = Stream(leaks=found, shapes=(2, 6, 0, 1), doubts=[(2, 1, 1), (3, 1, 2)])
    stream.extra = wire.frame_bytes(
        wire.Frame(wire.DIGESTS, streams.column_payload("<u8", (11, 12, 13, 2**64 - 1)))
    )
    leaks = read(stream.encoded()).leaks
    assert leaks.first_word.tolist() == [7, 0, 9, 8]
    assert leaks.shape.tolist() == [2, 6, 0, 1]
    assert leaks.reason.tolist() == [0, 0, model.ONE_PAST_THE_END, model.TAGGED]
    assert leaks.digest.tolist() == [11, 12, 13, 2**64 - 1]


def test_the_first_reason_given_for_a_leak_is_the_one_that_counts() -> None:
    stream = Stream(
        leaks=[Leak(), Leak()], doubts=[(1, 1, model.TAGGED), (0, 2, model.ONE_PAST_THE_END)]
    )
    reasons = read(stream.encoded()).leaks.reason
    assert reasons.tolist() == [model.ONE_PAST_THE_END, model.TAGGED]


@pytest.mark.parametrize(
    "damage",
    [
        {"shapes": (1, 2)},
        {"doubts": [(0, 2, 1)]},
        {"doubts": [(0, 1, 99)]},
        {"contents": {1: b"abc"}},
    ],
)
def test_columns_that_do_not_fit_the_leaks_are_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(errors.StreamError, match="damaged"):
        read(Stream(leaks=[Leak()], **damage).encoded())


def test_kinds_of_live_blocks_are_read() -> None:
    columns = [np.array([3, 4], "<u8"), np.array([72, 160], "<u8"), np.array([24, 40], "<u8")]
    columns += [np.array([0x1000, 0x2000], "<u8"), np.array([0, 1], "<u4")]
    columns += [np.array([0, 6], "<u4"), np.arange(6, dtype="<u8")]
    payload = struct.pack("<II", 2, 3) + b"".join(column.tobytes() for column in columns)
    kinds = read(Stream(extra=wire.frame_bytes(wire.Frame(wire.KINDS, payload))).encoded()).kinds
    assert kinds is not None
    assert kinds.count.tolist() == [3, 4]
    assert kinds.bytes.tolist() == [72, 160]
    assert kinds.arena.tolist() == [0, 1]
    assert kinds.shape.tolist() == [0, 6]
    assert kinds.words.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_answers_about_a_block_are_read() -> None:
    block = model.Block(asked=0x1008, start=0x1000, size=24, state=model.REACHABLE, arena=1)
    holder = model.Reference(0x2000, 0x1008, model.REACHABLE_BLOCK, 0, 0x1FF0, 40)
    root = model.Reference(0, 0x2000, model.ROOT_WORD, 5, 0, 0)
    owner = model.WordOwner(0, 27, 4711)
    extra = wire.encode(wire.BLOCK, block._asdict())
    extra += wire.encode(wire.REFERENCES, [holder._asdict()])
    extra += wire.encode(wire.CHAIN, [root._asdict(), holder._asdict()])
    extra += wire.encode(wire.WORD_OWNERS, [owner._asdict()])
    recording = read(Stream(extra=extra).encoded())
    assert recording.block == block
    assert recording.references == (holder,)
    assert recording.chain == (root, holder)
    assert recording.word_owners == (owner,)


def test_progress_is_told_as_it_comes() -> None:
    told: list[model.Progress] = []
    decode(wire.frames(io.BytesIO(Stream().encoded())), told.append)
    assert told == [model.Progress("mark", 1, 2)]


def test_a_stream_cut_off_anywhere_is_refused() -> None:
    whole = Stream(leaks=[Leak(below=[8])], contents={0: b"x"}).encoded()
    read(whole)
    for length in range(len(whole)):
        with pytest.raises(errors.StreamError):
            read(whole[:length])


@given(st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    raw = bytearray(Stream(leaks=[Leak(below=[8]), Leak()]).encoded())
    for at in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.integers(0, 255))
    # Anything but our own errors would be a traceback for the user.
    with contextlib.suppress(errors.ReachscanError):
        read(bytes(raw))


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(errors.StreamError):
        read(raw)


def test_unknown_records_are_skipped() -> None:
    unknown = wire.frame_bytes(wire.Frame(999, b"from the future"))
    assert read(Stream(extra=unknown).encoded()).target.pid == 4711


@pytest.mark.parametrize(
    ("at", "field", "says"),
    [
        (0, b"ELF.", "this file is not a saved scan"),
        (8, struct.pack("<H", 2), "version 2"),
        (10, b"\2", "little-endian"),
        (11, b"\4", "a word has 4 bytes"),
    ],
    ids=["magic", "version", "byte order", "word size"],
)
def test_a_wrong_hello_is_refused(at: int, field: bytes, says: str) -> None:
    raw = bytearray(Stream().encoded())
    raw[at : at + len(field)] = field
    with pytest.raises(errors.StreamError, match=says):
        read(bytes(raw))


def test_a_stream_that_goes_on_after_its_end_is_refused() -> None:
    with pytest.raises(errors.StreamError, match="goes on"):
        read(Stream().encoded() + b"x")


COLUMNS = {*wire.COLUMNS, wire.REGIONS}
ENORMOUS = struct.pack("<I", 2**32 - 1)


@pytest.mark.parametrize("kind", sorted({*wire.RECORDS, *COLUMNS}))
@pytest.mark.parametrize("payload", [b"", b"\1", ENORMOUS, ENORMOUS * 2, ENORMOUS * 40])
def test_lying_counts_are_refused(kind: int, payload: bytes) -> None:
    raw = wire.hello_bytes() + wire.frame_bytes(wire.Frame(kind, payload))
    with pytest.raises(errors.StreamError):
        read(raw)


def test_an_oversized_record_is_refused() -> None:
    raw = wire.hello_bytes() + struct.pack("<II", wire.LEAKS, wire.MAX_PAYLOAD + 1)
    with pytest.raises(errors.StreamError, match="claims to be"):
        read(raw)


def final(**changes: int) -> bytes:
    fields = dict.fromkeys(("allocations", "bytes", "leaked", "leaked_bytes", "direct"), 0)
    return wire.encode(wire.FINAL, {**fields, "direct_bytes": 0, **changes})


def without_final(stream: Stream) -> bytes:
    return b"".join((wire.hello_bytes(), *stream.facts(), *stream.results(stream.columns())))


@pytest.mark.parametrize(
    "ending",
    [
        final(),
        final(allocations=1, bytes=25, leaked=1, leaked_bytes=25, direct=1, direct_bytes=24),
        final(allocations=1, bytes=24, leaked=1, leaked_bytes=24, direct=0, direct_bytes=0),
        final(allocations=1, bytes=24, leaked=1, leaked_bytes=24, direct=1, direct_bytes=23),
    ],
    ids=["count", "bytes", "direct", "direct bytes"],
)
def test_totals_that_do_not_add_up_are_refused(ending: bytes) -> None:
    with pytest.raises(errors.StreamError, match="but states"):
        read(without_final(Stream(leaks=[Leak(24)])) + ending)


@pytest.mark.parametrize("heap", [{"allocations": 0, "bytes": 24}, {"allocations": 1, "bytes": 23}])
def test_more_leaks_than_the_heap_holds_are_refused(heap: dict[str, int]) -> None:
    ending = final(leaked=1, leaked_bytes=24, direct=1, direct_bytes=24, **heap)
    with pytest.raises(errors.StreamError, match="in a heap of"):
        read(without_final(Stream(leaks=[Leak(24)])) + ending)


def test_more_live_blocks_than_the_heap_holds_are_refused() -> None:
    kinds: list[streams.Kind] = [(1000, 64000, 64, 16, 0, 0, []), (1, 64, 64, 16, 0, 1, [])]
    assert read(Stream(kinds=kinds[:1]).encoded()).kinds is not None
    with pytest.raises(errors.StreamError, match="more than the heap holds"):
        read(Stream(kinds=kinds).encoded())


def records_of(kind: int, rows: int, row: bytes) -> bytes:
    return wire.frame_bytes(wire.Frame(kind, struct.pack("<I", rows) + rows * row))


ONE_LEAK = struct.pack("<IIQQI", 1, 0, 16, 24, model.DIRECT)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (wire.encode(wire.SNAPSHOT, streams.SNAPSHOT), "two records of type 5"),
        (records_of(wire.TYPES, wire.MAX_ROWS[wire.TYPES] + 1, bytes(12)), "rows of type 9"),
        (wire.encode(wire.TYPES, [(8, 1024 * "x")]), "name of a type is too long"),
        (2 * records_of(wire.CONTENTS, 4000, bytes(8)), "rows of type 15"),
        (records_of(wire.DOUBTS, 100_000, struct.pack("<III", 0, 1, 1)), "too often"),
        (records_of(wire.DOUBTS, 2, struct.pack("<III", 0, 8, 1)), "too often"),
        (9000 * wire.frame_bytes(wire.Frame(wire.LEAKS, ONE_LEAK)), "small records of type 8"),
        (9000 * wire.frame_bytes(wire.Frame(wire.KINDS, bytes(8))), "small records of type 19"),
    ],
    ids=[
        "snapshots",
        "types",
        "long type",
        "contents",
        "doubts",
        "overlapping doubts",
        "leaks",
        "kinds",
    ],
)
def test_more_than_a_scan_can_say_is_refused(extra: bytes, says: str) -> None:
    with pytest.raises(errors.StreamError, match=says):
        read(Stream(leaks=[Leak()], extra=extra).encoded())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (wire.TYPES, {"vtable": 2**64 - 1, "name": "N1aE\N{SNOWMAN}"}),
        (wire.CONTENTS, {"leak": 7, "bytes": b"\xff\0"}),
        (wire.DOUBTS, {"first": 1, "count": 2, "reason": 3}),
        (wire.NAMES, {"address": 1, "module": "/lib/a", "symbol": "", "offset": 9}),
        (wire.THREADS, streams.THREAD),
    ],
)
def test_rows_are_written_and_read_back(kind: int, values: dict[str, Any]) -> None:
    raw = wire.RECORDS[kind].build([values, tuple(values.values())])
    rows = wire.parse(wire.Frame(kind, raw))
    assert [row._asdict() for row in rows] == [values, values]
    for length in range(len(raw)):
        with pytest.raises(errors.StreamError, match="damaged"):
            wire.parse(wire.Frame(kind, raw[:length]))
    with pytest.raises(ConstructError):
        wire.RECORDS[kind].build([{**values, next(iter(values)): -1}])


def test_rows_travel_in_as_many_records_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_PAYLOAD", 4 + 2 * 13)
    for count, expected in ((0, [0]), (1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1])):
        rows = [(n, "x") for n in range(count)]
        frames = list(wire.row_frames(wire.TYPES, rows))
        assert [len(wire.parse(frame)) for frame in frames] == expected
        assert all(len(frame.payload) <= wire.MAX_PAYLOAD for frame in frames)
        assert [tuple(row) for frame in frames for row in wire.parse(frame)] == rows


def test_a_stream_without_facts_is_refused() -> None:
    with pytest.raises(errors.StreamError, match="no target record"):
        read(wire.hello_bytes() + final())


def test_a_leak_before_its_parent_is_refused() -> None:
    columns = wire_columns.LeakColumns(
        np.array([1, 2], "<u8"),
        np.array([8, 8], "<u8"),
        np.array([model.DIRECT, 1], "<u4"),
        np.zeros((2, 8), "<u8"),
    )
    record = wire.frame_bytes(wire.Frame(wire.LEAKS, wire_columns.leaks_payload(columns)))
    with pytest.raises(errors.StreamError, match="precedes"):
        read(wire.hello_bytes() + record)


@pytest.mark.parametrize("code", sorted(errors.FAILURES))
def test_failures_become_the_error_that_knows_what_to_do(code: str) -> None:
    with pytest.raises(errors.FAILURES[code]) as caught:
        read(streams.failure(code, "it went wrong."))
    internal = code == "internal"
    assert caught.value.sentence == "it went wrong" + (" (step freeze)" if internal else "")
    assert caught.value.exit_status == (70 if internal else 3)
    assert internal or caught.value.next_step


def test_other_pages_need_another_machine_and_no_other_processor() -> None:
    with pytest.raises(errors.UnsupportedPageSizeError) as caught:
        read(streams.failure("unsupported-page-size", "the pages have 16 KiB."))
    assert "a machine with such pages" in caught.value.next_step


def test_an_unknown_failure_is_still_told() -> None:
    with pytest.raises(errors.ScanFailedError, match="moon"):
        read(streams.failure("moon-phase", "the moon is full"))


def test_a_bug_names_step_errno_thread_and_address() -> None:
    with pytest.raises(errors.InternalError, match=r"\(step freeze, EPERM, thread 7, address 0x10"):
        read(streams.failure("internal", "odd", errno=1, tid=7, address=16))


def with_machine(machine: int, page_kib: int) -> bytes:
    begin = wire.hello_bytes(machine, page_kib)
    return begin + Stream(leaks=[Leak()]).encoded()[len(begin) :]


@pytest.mark.parametrize(
    ("machine", "page_kib", "page_size"), [(0, 0, 4 << 10), (X86_64, 4, 4 << 10)]
)
def test_older_streams_are_of_x86_64(machine: int, page_kib: int, page_size: int) -> None:
    recording = read(with_machine(machine, page_kib))
    assert (recording.machine, recording.page_size) == (X86_64, page_size)


def test_a_stream_of_an_unknown_processor_is_refused() -> None:
    with pytest.raises(errors.StreamError, match=r"another processor \(ELF machine 243\)"):
        read(with_machine(243, 4))


def test_a_record_that_passes_for_a_hello_is_refused() -> None:
    begin = wire.hello_bytes()
    with pytest.raises(errors.StreamError, match="claims to begin a stream"):
        read(begin + struct.pack("<II", wire.BEGIN, len(begin)) + begin)
