"""Scans of different moments: what is joined, and what an error of one of them casts doubt on."""

from __future__ import annotations

import random
from itertools import combinations
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from seen_leaks import A, B, C, D, Seen, blocks, in_structures, stream
from streams import HEAP_START

from reachscan.recording import model
from reachscan.recording.decode import decode
from reachscan.recording.moments import Moments
from reachscan.recording.zip_equal import zip_equal


class State(NamedTuple):
    """A block at one moment. An `owner`, the number of another block, points to it."""

    live: bool
    reached: bool
    contents: int
    owner: int


def scan(told: bytes, now: dict[int, State]) -> list[Seen]:
    """Return what a scan sees that was told what those before it found."""
    lost = {address: state for address, state in now.items() if state.live and not state.reached}
    before = {row[0]: row[2] for row in np.frombuffer(told, "<u8").reshape(-1, 3).tolist()}
    found = [
        Seen(address, parent=state.owner if state.owner in lost else 0, digest=state.contents)
        for address, state in lost.items()
    ]

    def depth(leak: Seen) -> int:
        return 1 + depth(by_address[leak.parent]) if leak.parent else 0

    by_address = {leak.address: leak for leak in found}
    found.sort(key=depth)  # owners before what they own
    hidden = [
        Seen(address, digest=state.contents, reason=model.LOST_BEFORE)
        for address, state in now.items()
        if state.live and state.reached and before.get(address) == state.contents
    ]
    return in_structures(found) + hidden


def join(*moments: dict[int, State], shuffled: random.Random | None = None) -> model.Recording:
    merger = Moments(10**9)
    for now in moments:
        items = list(now.items())
        if shuffled:
            shuffled.shuffle(items)
        frames = stream(*scan(merger.lost_before, dict(items)))
        merger.add(frames, decode(frames))
    return decode(merger.merged())


def reasons(found: model.Recording) -> dict[int, int]:
    return dict(zip_equal(found.leaks.address.tolist(), found.leaks.reason.tolist()))


LOST, REACHED, FREE = State(True, False, 1, 0), State(True, True, 1, 0), State(False, False, 0, 0)


def test_what_the_last_scan_cannot_see_is_possible() -> None:
    found = join({A: LOST, B: LOST}, {A: REACHED, B: LOST})
    assert reasons(found) == {A: model.LOST_BEFORE, B: model.DEFINITE}
    assert found.moments == model.Moments(10**9, (412_345, 412_345), (1, 32), (0, 0), False)


def test_what_the_last_scan_sees_again_is_certain() -> None:
    assert reasons(join({A: LOST}, {A: REACHED}, {A: LOST})) == {A: model.DEFINITE}


def test_what_is_freed_is_not_reported_and_casts_doubt_on_its_structure() -> None:
    below = LOST._replace(owner=A)
    found = join(
        {A: LOST, B: below, C: LOST, D: LOST._replace(owner=C)},
        {A: FREE, B: LOST, C: LOST, D: LOST._replace(owner=C)},
    )
    assert reasons(found) == {B: model.CHANGED, C: model.DEFINITE, D: model.DEFINITE}
    assert found.moments and found.moments.withdrawn == (2, 64)


def test_the_rest_of_a_structure_in_use_is_no_longer_reported() -> None:
    found = join({A: LOST, B: LOST._replace(owner=A)}, {A: FREE, B: REACHED})
    assert reasons(found) == {}


def test_what_changed_is_in_doubt_for_good() -> None:
    changed = LOST._replace(contents=2)
    assert reasons(join({A: LOST}, {A: changed})) == {A: model.CHANGED}
    assert reasons(join({A: LOST}, {A: changed}, {A: changed})) == {A: model.CHANGED}
    assert reasons(join({A: LOST}, {A: FREE}, {A: changed})) == {A: model.CHANGED}


def test_a_new_block_of_the_same_contents_is_never_certain() -> None:
    assert reasons(join({A: LOST}, {A: FREE}, {A: LOST})) == {A: model.CHANGED}
    assert reasons(join({A: LOST}, {A: FREE}, {A: REACHED})) == {}


def test_only_certain_leaks_are_looked_for_again() -> None:
    merger = Moments(0)
    frames = stream(Seen(A, reason=model.TAGGED), Seen(B, digest=7))
    merger.add(frames, decode(frames))
    assert np.frombuffer(merger.lost_before, "<u8").tolist() == [B, 32, 7]


def test_a_process_that_rests_is_said_to() -> None:
    merger = Moments(0)
    frames = stream(Seen(A))
    merger.add(frames, decode(frames))
    merger.rest()
    found = decode(merger.merged())
    assert found.moments and found.moments.rested
    assert blocks(found) == {A: None}


@st.composite
def histories(draw: st.DrawFn) -> list[dict[int, State]]:
    """Draw what becomes of up to 8 blocks; an owner is reached only if what it owns is, too."""
    places = [HEAP_START + n * 0x100 for n in range(8)]
    result = []
    for _ in range(draw(st.integers(1, 5))):
        now: dict[int, State] = {}
        for place in draw(st.lists(st.sampled_from(places), unique=True)):
            owner = draw(st.sampled_from([0, *(a for a, s in now.items() if s.live)]))
            reached = bool(owner and now[owner].reached) or draw(st.booleans())
            contents = draw(st.sampled_from([1, 1, 1, 2]))
            now[place] = State(
                draw(st.sampled_from([True] * 3 + [False])), reached, contents, owner
            )
        result.append(now)
    return result


@given(histories())
def test_what_may_be_reported_and_how_certainly(history: list[dict[int, State]]) -> None:
    found, last = reasons(join(*history)), history[-1]
    certain = {a for a, s in last.items() if s.live and not s.reached}
    wrong = {
        address
        for earlier, later in combinations(history, 2)
        for address, state in earlier.items()
        if state.live
        and not state.reached
        and (not (now := later.get(address, FREE)).live or now.contents != state.contents)
    }
    for address, reason in found.items():
        assert last[address].live, "a freed block is never reported"
        assert reason != model.DEFINITE or (address in certain and address not in wrong)
        if reason == model.LOST_BEFORE:
            assert address not in certain and address not in wrong
            assert any(s.live and not s.reached for now in history if (s := now.get(address)))
    assert certain <= set(found), "never fewer than the last scan found"
    if not wrong:
        assert {a for a, reason in found.items() if reason == model.DEFINITE} == certain
        lost = {a for now in history for a, s in now.items() if s.live and not s.reached}
        assert lost == set(found)


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_blocks_does_not_matter(
    history: list[dict[int, State]], shuffled: random.Random
) -> None:
    assert reasons(join(*history)) == reasons(join(*history, shuffled=shuffled))


@given(histories())
def test_scans_that_see_the_same_are_one(history: list[dict[int, State]]) -> None:
    last = history[-1]
    assert reasons(join(last, last, last)) == reasons(join(last))
