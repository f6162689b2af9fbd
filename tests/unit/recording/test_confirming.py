"""What several scans agree on: nothing else is kept, owners are found again, and totals add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import streams
from hypothesis import given
from hypothesis import strategies as st
from seen_leaks import A, B, C, D, Seen, blocks, in_structures, stream
from streams import HEAP_START

from reachscan import errors
from reachscan.recording import model, wire, wire_columns
from reachscan.recording.confirm import Confirmer
from reachscan.recording.decode import decode
from reachscan.recording.zip_equal import zip_equal


def confirm(*scans: Sequence[wire.Frame]) -> model.Recording:
    confirmer = Confirmer(10**9)
    for frames in scans:
        confirmer.add(frames, decode(frames))
    return decode(confirmer.merged())


def test_only_what_every_scan_saw_is_kept() -> None:
    found = confirm(stream(Seen(A), Seen(B)), stream(Seen(B), Seen(C), Seen(A, size=48)))
    assert blocks(found) == {B: None}
    assert (found.totals.leaked, found.totals.leaked_bytes) == (1, 32)
    assert found.confirmation == model.Confirmation(10**9, (412_345, 412_345), (1, 32), (2, 80))


def test_what_came_and_went_is_counted_once() -> None:
    found = confirm(stream(Seen(A)), stream(Seen(A)), stream())
    assert blocks(found) == {}
    assert found.confirmation and found.confirmation.vanished == (1, 32)


def test_what_changed_is_only_possible_and_so_is_its_whole_structure() -> None:
    one = stream(Seen(A), Seen(B, parent=A), Seen(C), Seen(D, parent=C))
    two = stream(Seen(A), Seen(B, parent=A, digest=1), Seen(C), Seen(D, parent=C))
    found = confirm(one, two)
    assert found.leaks.reason.tolist() == [model.CHANGED, model.CHANGED, 0, 0]


def test_what_changed_once_and_then_rested_has_changed() -> None:
    found = confirm(stream(Seen(A, digest=1)), stream(Seen(A)), stream(Seen(A)))
    assert found.leaks.reason.tolist() == [model.CHANGED]


def test_a_doubt_of_any_scan_stays() -> None:
    found = confirm(
        stream(Seen(A, reason=model.TAGGED)), stream(Seen(A, digest=1)), stream(Seen(A))
    )
    assert found.leaks.reason.tolist() == [model.TAGGED]


def test_a_block_whose_owner_is_left_out_goes_to_the_owner_above() -> None:
    one = stream(Seen(A), Seen(C), Seen(D))
    two = stream(Seen(A), Seen(B, parent=A), Seen(C, parent=B), Seen(D, parent=C))
    assert blocks(confirm(one, two)) == {A: None, C: A, D: C}


def test_blocks_whose_head_is_left_out_become_heads_with_their_own_below() -> None:
    one = stream(Seen(B), Seen(C), Seen(D))
    # Breadth first: what hangs below B does not follow it at once.
    two = stream(Seen(A), Seen(B, parent=A), Seen(C, parent=A), Seen(D, parent=B))
    found = confirm(one, two)
    assert blocks(found) == {B: None, D: B, C: None}
    assert found.leaks.address.tolist() == [B, D, C]
    assert found.leaks.heads.tolist() == [0, 2]
    assert found.contents == {0: b"\1", 1: b"\3", 2: b"\2"}


def test_another_program_confirms_nothing() -> None:
    vdso = model.Mapping(0x7FFF_0000_0000, 0x7FFF_0000_2000, 0, 0, model.READ, "[vdso]")
    for facts in ({"exe": "/usr/bin/other"}, {"mappings": [*streams.MAPPINGS, vdso]}):
        with pytest.raises(errors.TargetGoneError, match="became another program"):
            confirm(stream(Seen(A)), stream(Seen(A), **facts))


def test_warnings_of_all_scans_are_heard_once() -> None:
    one = stream(warnings=[("incomplete-maps", "x"), ("other", "y")])
    two = stream(warnings=[("other", "z")])
    assert [(w.code, w.message) for w in confirm(one, two).warnings] == [
        ("other", "z"),
        ("incomplete-maps", "in one of the scans: x"),
    ]


@st.composite
def scans(draw: st.DrawFn) -> list[list[Seen]]:
    """Draw scans of up to 12 places, each of which may hold a leak below an earlier one."""
    places = [HEAP_START + n * 0x100 for n in range(12)]
    result = []
    for _ in range(draw(st.integers(1, 4))):
        found: list[Seen] = []
        for place in draw(st.lists(st.sampled_from(places), unique=True)):
            parent = draw(st.sampled_from([0, *(leak.address for leak in found)]))
            digest, size = draw(st.integers(0, 1)), draw(st.sampled_from([24, 24, 40]))
            reason = draw(st.sampled_from([0, 0, 0, 1, 3]))
            found.append(Seen(place, size, parent, digest, reason))
        result.append(in_structures(found))
    return result


def expected(found: list[list[Seen]]) -> dict[int, tuple[int, int | None]]:
    """Return the same by brute force: address -> size and owner."""
    last = {leak.address: leak for leak in found[-1]}
    sizes = [{leak.address: leak.size for leak in scan} for scan in found]
    kept = {a for a, leak in last.items() if all(scan.get(a) == leak.size for scan in sizes)}
    result = {}
    for address in kept:
        owner = last[address].parent
        while owner and owner not in kept:
            owner = last[owner].parent
        result[address] = (last[address].size, owner or None)
    return result


@given(scans())
def test_it_is_what_brute_force_finds(found: list[list[Seen]]) -> None:
    recording = confirm(*(stream(*scan) for scan in found))
    owners = blocks(recording)
    sizes = dict(zip_equal(recording.leaks.address.tolist(), recording.leaks.size.tolist()))
    assert {a: (sizes[a], owners[a]) for a in owners} == expected(found)
    assert recording.leaks.shape.tolist() == [size % 8 for size in sizes.values()]
    assert recording.confirmation
    seen = {(leak.address, leak.size) for scan in found for leak in scan}
    left_out = recording.confirmation.vanished[0] + recording.confirmation.recent[0]
    assert len(owners) + left_out == len(seen)


@given(scans())
def test_structures_are_in_one_piece_and_of_one_mind(found: list[list[Seen]]) -> None:
    recording = confirm(*(stream(*scan) for scan in found))
    leaks = recording.leaks
    doubted: dict[int, set[int]] = {}
    head = -1
    heads: dict[int, int] = {}
    for i, parent in enumerate(leaks.parent.tolist()):
        head = i if parent == model.DIRECT else head
        heads[i] = head
        assert parent == model.DIRECT or heads[parent] == head
        doubted.setdefault(head, set()).add(int(leaks.reason[i]))
    assert all(len(reasons) == 1 for reasons in doubted.values())
    for i, address in enumerate(leaks.address.tolist()):
        mine: list[Any] = [leak for scan in found for leak in scan if leak.address == address]
        if any(leak.reason for leak in mine) or len({leak.digest for leak in mine}) > 1:
            assert leaks.reason[i] != model.DEFINITE


def test_a_single_scan_confirms_itself() -> None:
    frames = stream(Seen(A), Seen(B, parent=A))
    once, again = decode(frames), confirm(frames)
    assert blocks(once) == blocks(again)
    assert once.totals == again.totals


def test_a_long_list_is_no_problem() -> None:
    count = 20_000
    one = [
        Seen(HEAP_START + n * 64, parent=HEAP_START + (n - 1) * 64 if n else 0)
        for n in range(count)
    ]
    found = confirm(stream(*(leak for leak in one if leak.address % 128 == 0)), stream(*one))
    assert found.totals.leaked == count // 2
    assert found.totals.direct == 1


@pytest.mark.parametrize("kind", [wire.SHAPES, wire.DIGESTS])
def test_columns_can_be_written_and_read(kind: int) -> None:
    column = np.arange(5, dtype=wire_columns.COLUMN_TYPES[kind])
    frame = wire.Frame(kind, wire_columns.column_payload(column))
    assert wire_columns.parse_column(frame).tolist() == column.tolist()
