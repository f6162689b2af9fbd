"""What a stream tells of where blocks come from, and how nonsense is refused."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from command_lines import Runner
from recorders import Recorded, columns, frame
from streams import CODE, HEAP_START, LIBRARY, LIBRARY_PATH, Leak, Stream

from reachscan import errors, reports
from reachscan.grouping import folding
from reachscan.grouping.join import join
from reachscan.naming import frames
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.origins import NO_STACK, Call

LEAKS = [Leak(24), Leak(24), Leak(40), Leak(24, below=[100])]
MAIN, MAKE, COPY = CODE + 0x10, CODE + 0x20, CODE + 0x30
ORIGINS = [
    ((MAKE, MAIN), 1, 500, 20),
    ((COPY, MAIN), 1, 900, 24),
    ((MAKE, MAIN), 2, 1500, 33),
    None,
    ((COPY,), 1, 20_000, 100),
]


def decoded(recorded: Recorded | bytes, leaks: Any = LEAKS, **more: Any) -> model.Recording:
    extra = recorded if isinstance(recorded, bytes) else recorded.encoded()
    return decode(wire.frames(io.BytesIO(Stream(leaks=leaks, extra=extra, **more).encoded())))


def groups(recording: model.Recording) -> list[Any]:
    folded = folding.fold(join(recording._replace(names={}), root="/"), recording.contents)
    return folding.groups(recording, folded, 100, 10, {})


def test_blocks_have_their_stacks() -> None:
    recording = decoded(Recorded(ORIGINS))
    assert recording.origins and recording.stacks
    chains = [recording.stacks.calls(stack) for stack in recording.origins.stack.tolist()]
    assert chains == [
        tuple(Call(pc, 0) for pc in (origin[0] if origin else ())) for origin in ORIGINS
    ]
    assert recording.origins.recorded.tolist() == [True, True, True, False, True]


def test_groups_are_stacks_whatever_the_sizes_are() -> None:
    made, *others = sorted(groups(decoded(Recorded(ORIGINS))), key=lambda g: -int(g.allocations))
    assert sorted(row.size for row in made.sizes) == [24, 40]
    assert (made.origin.oldest_us, made.origin.newest_us) == (9_500_000, 8_500_000)
    threads = [(thread.name, thread.tid, thread.allocations) for thread in made.origin.threads]
    assert threads == [("", 0, 1), ("worker", 77, 1)]
    (copied,) = (group for group in others if group.origin)
    (unknown,) = (group for group in others if not group.origin)
    assert copied.allocations == 1
    assert (unknown.indirect_allocations, unknown.indirect_bytes) == (1, 100)


def test_two_nodes_of_one_stack_are_one() -> None:
    doubled = columns("I", [1, 2, 3, 4], [0, 1, 0, 3], [0] * 4) + columns("Q", [MAIN, MAKE] * 2)
    whole = Recorded([None] * 5).encoded()
    nodes = frame(wire.STACK_NODES, 4, doubled)
    empty = frame(wire.STACK_NODES, 0, b"")
    blocks = frame(
        wire.ORIGINS,
        5,
        columns("I", [2, 4, 2, 4, 0], [1] * 5) + columns("Q", [0] * 5, [24] * 5),
    )
    unknown = Recorded([None] * 5)
    header = whole.replace(empty, nodes).replace(unknown.encoded()[: len(blocks)], blocks)
    recording = decoded(header)
    assert recording.origins
    assert len(set(recording.origins.stack[:4].tolist())) == 1
    assert recording.origins.stack[4] == NO_STACK


@pytest.mark.parametrize(
    ("nodes", "parents"),
    [([1, 2], [2, 1]), ([1, 2], [1, 1]), ([5, 6], [6, 5])],
)
def test_stacks_that_lead_in_circles_are_none(nodes: list[int], parents: list[int]) -> None:
    trie = frame(
        wire.STACK_NODES, 2, columns("I", nodes, parents, [0, 0]) + columns("Q", [MAIN, MAKE])
    )
    whole = Recorded([((MAKE,), 1, 0, 24)] * 5).encoded()
    one = frame(wire.STACK_NODES, 1, columns("I", [1], [0], [0]) + columns("Q", [MAKE]))
    recording = decoded(whole.replace(one, trie))
    assert recording.origins
    assert (recording.origins.stack == NO_STACK).all()


def test_a_node_that_is_not_there_ends_its_stack() -> None:
    trie = frame(wire.STACK_NODES, 1, columns("I", [1], [77], [0]) + columns("Q", [MAKE]))
    one = frame(wire.STACK_NODES, 1, columns("I", [1], [0], [0]) + columns("Q", [MAKE]))
    whole = Recorded([((MAKE,), 1, 0, 24)] * 5).encoded()
    recording = decoded(whole.replace(one, trie))
    assert recording.origins and recording.stacks
    assert recording.stacks.calls(int(recording.origins.stack[0])) == (Call(MAKE, 0),)


def test_a_deep_stack_is_whole() -> None:
    stack = tuple(range(CODE + 1, CODE + 257))
    recording = decoded(Recorded([(stack, 1, 0, 24)] * 5))
    assert recording.origins and recording.stacks
    calls = recording.stacks.calls(int(recording.origins.stack[0]))
    assert tuple(call.pc for call in calls) == stack


@pytest.mark.parametrize("count", [0, 4, 6])
def test_origins_of_other_blocks_are_refused(count: int) -> None:
    with pytest.raises(errors.StreamError, match="origins differ"):
        decoded(Recorded([((MAKE,), 1, 0, 24)] * count))


def test_nodes_that_come_twice_are_refused() -> None:
    trie = frame(wire.STACK_NODES, 1, columns("I", [1], [0], [0]) + columns("Q", [MAKE]))
    whole = Recorded([((MAKE,), 1, 0, 24)] * 5).encoded()
    with pytest.raises(errors.StreamError, match="twice"):
        decoded(whole + trie)


def test_two_recorders_are_refused() -> None:
    whole = Recorded([None] * 5)
    header = wire.encode(wire.RECORDER, decoded_header(whole))
    with pytest.raises(errors.StreamError, match="two records"):
        decoded(whole.encoded() + header)


def decoded_header(recorded: Recorded) -> Any:
    found = wire.frames(io.BytesIO(Stream(leaks=LEAKS, extra=recorded.encoded()).encoded()))
    return next(wire.parse(one) for one in found if one.type == wire.RECORDER)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"lost": 5}, "no room for 5 blocks"),
        ({"stopped": 1, "stopped_after_ms": 2500}, "since 2.5 s after"),
        ({"stopped": 2}, "(stop-at)"),
    ],
)
def test_what_was_not_recorded_is_warned_of(header: dict[str, object], words: str) -> None:
    (warning,) = decoded(Recorded([None] * 5, header=header)).warnings
    assert warning.code == "stacks-missing"
    assert words in warning.message


def test_samples_stand_for_more() -> None:
    """A block of S bytes is recorded with the probability 1 - exp(-S / mean distance)."""
    leaks = [Leak(1008)] * 5
    recorded = Recorded([((MAKE,), 1, 0, 1000)] * 5, header={"sample": 1000})
    (group,) = groups(decoded(recorded, leaks))
    assert group.allocations == 5 and group.origin.estimated
    assert group.origin.estimated.allocations == round(5 / (1 - 0.36787944))
    assert group.origin.estimated.bytes == round(5 * 1008 / (1 - 0.36787944))


def test_calls_are_named_by_the_byte_before_they_return_to() -> None:
    """A function that does not return ends with its call: what follows is another's."""
    recording = decoded(Recorded([((CODE + 0x40,), 1, 0, 24)] * 5))
    space = AddressSpace.of(recording)
    names = {CODE + 0x3F: model.Name(LIBRARY_PATH, "dies", 0xF)}
    found = frames.without_lines(recording, space, names)
    (frame_,) = found[Call(CODE + 0x40, 0)]
    assert (frame_.function, frame_.function_offset) == ("dies", 0x10)
    assert (frame_.module, frame_.build_id) == (LIBRARY_PATH, "010203")
    assert frame_.offset == CODE + 0x40 - LIBRARY


def test_a_closed_library_has_no_names_of_another() -> None:
    recorded = Recorded(
        [((CODE + 0x40,), 1, 0, 24)] * 5,
        closed=[(3, 0x7000, "/lib/gone.so", b"\4\5")],
        closed_calls=[CODE + 0x40],
    )
    recording = decoded(recorded)
    names = {CODE + 0x3F: model.Name(LIBRARY_PATH, "another", 0)}
    found = frames.without_lines(recording, AddressSpace.of(recording), names)
    (frame_,) = found[Call(CODE + 0x40, 3)]
    assert (frame_.module, frame_.build_id, frame_.function) == ("/lib/gone.so", "0405", None)
    assert frame_.offset == CODE + 0x40 - 0x7000


def test_kinds_have_origins_too() -> None:
    kinds = [(3, 72, 24, HEAP_START + 16, 0, 0, [1])]
    recorded = Recorded([((MAKE, MAIN), 1, 7, 20)], about=wire.KIND_ORIGINS)
    recording = decoded(recorded, leaks=(), kinds=kinds)
    assert recording.kind_origins and recording.stacks
    (group,) = groups(recording)
    assert group.allocations == 3 and group.origin.threads[0].allocations == 3


def test_damaged_tables_are_reported_all_the_same(tmp_path: Path, run: Runner) -> None:
    """Whatever the target's memory says of its own recording."""
    most = (1 << 64) - 1
    header = {
        "started": most,
        "stopped": 77,
        "stopped_after_ms": most,
        "way_in": 99,
        "stacks": 99,
        "sample": most,
        "records": most,
        "lost": most,
        "min_size": most,
        "sizes": [(most, 0)],
    }
    origins = [((0, most, CODE), 7, most, most)] * 5
    stream = Stream(leaks=LEAKS, extra=Recorded(origins, threads={}, header=header).encoded())
    path = tmp_path / "damaged.rsc"
    path.write_bytes(stream.encoded())
    for name in reports.FORMATS[reports.LEAKS]:
        made = tmp_path / name
        assert run("report", path, "--format", name, "-o", made).talk == ""
        assert made.stat().st_size
    done = run("report", path, "--json", "--all")
    assert json.loads(done.out)["target"]["recorder"]["stopped"]["reason"] == "unknown"


def test_an_impossible_time_is_refused() -> None:
    with pytest.raises(errors.StreamError, match="too long"):
        decoded(Recorded([None] * 5, header={"now_ms": 1 << 43}))
