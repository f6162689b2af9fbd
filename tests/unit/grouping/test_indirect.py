"""Trees: every block below a group is counted once, where its way from the head leads."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from streams import Stream

from reachscan.grouping import indirect
from reachscan.grouping.groups import Branch, Folding
from reachscan.grouping.join import join
from reachscan.grouping.signatures import Types
from reachscan.naming import containers
from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.zip_equal import zip_equal

FOO, BAR = 0x1000, 0x2000
TYPES = ("app::Bar", "app::Foo")
ALL = 1 << 30


@dataclass(frozen=True)
class Block:
    """A leak; `parent` counts within its structure, whose first block is the head."""

    parent: int = 0
    size: int = 24
    shape: int = model.UNKNOWN_SHAPE
    word: int = 0

    @property
    def kind(self) -> str:
        if self.size >= 8 and self.word in (FOO, BAR):
            return TYPES[self.word == FOO]
        return containers.shape_name(self.shape) or f"{indirect.BLOCK} of {self.size}"


Structure = Sequence[Block]


def make(structures: Sequence[Structure], groups: Sequence[int]) -> tuple[model.Leaks, Folding]:
    parent: list[int] = []
    for blocks in structures:
        head = len(parent)
        parent += [head + b.parent if i else model.DIRECT for i, b in enumerate(blocks)]
    blocks = [block for structure in structures for block in structure]
    none = np.empty(0, np.uint64)
    parents = np.array(parent, np.uint32)
    heads = np.flatnonzero(parents == model.DIRECT)
    leaks = model.Leaks(
        address=np.arange(len(blocks), dtype=np.uint64),
        size=np.array([b.size for b in blocks], np.uint64),
        parent=parents,
        heads=heads,
        words=none.reshape(0, 0),
        first_word=np.array([b.word for b in blocks], np.uint64),
        shape=np.array([b.shape for b in blocks], np.uint8),
        reason=np.zeros(len(blocks), np.uint8),
        digest=none,
        object_type=none,
    )
    count = np.zeros(max(groups, default=-1) + 1, np.int64)
    empty = decode(wire.frames(io.BytesIO(Stream().encoded())))
    joined = join(empty._replace(some_leaks=leaks, names={}), root="/")
    types = Types(TYPES, np.array([FOO, BAR], np.uint64), np.array([1, 0]))
    below = np.bincount(groups, [len(structure) - 1 for structure in structures], len(count))
    folding = Folding(
        joined=joined._replace(types=types),
        group_of_row=np.array(groups, np.int32),
        allocations=count,
        bytes=count,
        indirect_allocations=below.astype(np.int64),
        indirect_bytes=count,
        example=count,
        type=count,
        shape=count,
        signature=count.reshape(-1, 1),
    )
    return leaks, folding


def grow(*structures: Structure, groups: Sequence[int] = (), rows: int = ALL) -> indirect.Trees:
    groups = groups or [0] * len(structures)
    return indirect.grow(*make(structures, groups), ALL, rows)


@st.composite
def structure(draw: st.DrawFn) -> Structure:
    block = st.builds(
        Block,
        parent=st.just(0),
        size=st.sampled_from([0, 7, 24, 40]) | st.integers(0, 400),
        shape=st.sampled_from([0, 0, 1, 2, 6, 200]),
        word=st.sampled_from([0, 0, FOO, BAR]),
    )
    blocks = draw(st.lists(block, min_size=1, max_size=30))
    # Small numbers make bushes, large ones chains.
    back = draw(st.integers(1, 30))
    return [
        replace(b, parent=draw(st.integers(max(0, i - back), max(0, i - 1))))
        for i, b in enumerate(blocks)
    ]


@st.composite
def grouped(draw: st.DrawFn) -> tuple[list[Structure], list[int]]:
    structures = draw(st.lists(structure(), min_size=1, max_size=6))
    groups = [draw(st.integers(0, 2)) for _ in structures]
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    return structures, [number[group] for group in groups]


def way(blocks: Structure, i: int) -> tuple[str, ...]:
    """Return the kinds from below the head down to a block, its loops erased one by one."""
    line = [i]
    while line[-1]:
        line.append(blocks[line[-1]].parent)
    kinds: list[str] = []
    for kind in (blocks[at].kind for at in reversed(line)):
        kinds = [*kinds[: kinds.index(kind)], kind] if kind in kinds else [*kinds, kind]
    # A block of the kind of its head hangs right below the group.
    return tuple(kinds[1:] or kinds)


def rows(
    branches: Sequence[Branch], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Branch]]:
    for branch in branches:
        name = branch.name or "..."
        if name == indirect.BLOCK:
            name = f"{indirect.BLOCK} of {branch.smallest}"
        yield (*above, name), branch
        yield from rows(branch.below, (*above, name))


@given(grouped())
def test_a_branch_is_the_way_from_the_head_without_loops(
    made: tuple[list[Structure], list[int]],
) -> None:
    structures, groups = made
    grown = grow(*structures, groups=groups)
    assert len(grown) == max(groups) + 1
    for group, tree in enumerate(grown):
        expected: Counter[tuple[str, ...]] = Counter()
        for blocks in (s for s, g in zip_equal(structures, groups) if g == group):
            for i in range(1, len(blocks)):
                names = way(blocks, i)
                names = names if len(names) <= indirect.DEPTH else (*names[: indirect.DEPTH], "...")
                expected[names] += 1
        found = list(rows(tree))
        assert len({names for names, _ in found}) == len(found)
        assert {names: branch.allocations for names, branch in found} == expected


@given(grouped(), st.integers(0, 12))
def test_however_it_is_cut_it_adds_up(made: tuple[list[Structure], list[int]], limit: int) -> None:
    structures, groups = made
    for group, tree in enumerate(grow(*structures, groups=groups, rows=limit)):
        members = [s for s, g in zip_equal(structures, groups) if g == group]
        below = [block for blocks in members for block in blocks[1:]]
        found = list(rows(tree))
        assert sum(branch.allocations for _, branch in found) == len(below)
        assert sum(branch.bytes for _, branch in found) == sum(block.size for block in below)
        # Each row that sums up could at worst be a single one that is shown instead.
        named = [branch for _, branch in found if branch.name is not None]
        sums = [branch for _, branch in found if branch.name is None]
        assert len(found) <= 2 * limit + 1
        assert all(branch.kinds == 1 and branch.allocations for branch in named)
        assert all(branch.kinds >= 1 and not branch.below for branch in sums)
        assert max((len(names) for names, _ in found), default=0) <= indirect.DEPTH + 1


@given(grouped(), st.integers(0, 2))
def test_other_groups_change_nothing(made: tuple[list[Structure], list[int]], wanted: int) -> None:
    leaks, folding = make(*made)
    whole = indirect.grow(leaks, folding, ALL, 5)
    assert indirect.grow(leaks, folding, wanted, 5) == whole[:wanted]


@given(grouped(), st.integers(0, 12), st.randoms())
def test_the_order_of_leaks_does_not_matter(
    made: tuple[list[Structure], list[int]], limit: int, chance: random.Random
) -> None:
    mixed = list(zip_equal(*made))
    chance.shuffle(mixed)
    mixed = [(shuffled(blocks, chance), group) for blocks, group in mixed]
    structures, groups = zip_equal(*mixed)
    assert grow(*structures, groups=groups, rows=limit) == grow(
        *made[0], groups=made[1], rows=limit
    )


def shuffled(blocks: Structure, chance: random.Random) -> Structure:
    """Return the same structure in another order in which parents precede children."""
    order = [0]
    left = set(range(1, len(blocks)))
    while left:
        order.append(chance.choice(sorted(i for i in left if blocks[i].parent in order)))
        left.remove(order[-1])
    return [replace(blocks[i], parent=order.index(blocks[i].parent)) for i in order]


def test_a_map_of_sessions_shows_as_one() -> None:
    head = Block(size=48)
    node = Block(0, 72, model.TREE_NODE)
    session, name = Block(0, 64, word=FOO), Block(0, 40, model.TEXT)
    blocks = [head, node]
    blocks += [replace(node, parent=1), replace(session, parent=1), replace(session, parent=2)]
    blocks += [replace(name, parent=3), replace(name, parent=4, size=100)]
    text = Branch("text", 1, 2, 140, 40, 100, ())
    sessions = Branch("app::Foo", 1, 2, 128, 64, 64, (text,))
    assert grow(blocks) == [(Branch("tree node", 1, 2, 144, 72, 72, (sessions,)),)]


def test_nothing_below_is_no_tree() -> None:
    assert grow([Block()], [Block()], groups=[0, 1]) == [(), ()]
    assert indirect.grow(*make([], []), ALL, 5) == []


def test_chains_of_any_length_are_one_branch() -> None:
    length = 100_000
    alike = [Block(max(0, i - 1)) for i in range(length)]
    assert [b.allocations for _, b in rows(grow(alike)[0])] == [length - 1]
    taking_turns = [Block(max(0, i - 1), size=24 + 8 * (i % 3)) for i in range(length)]
    assert len(list(rows(grow(taking_turns)[0]))) == 3


def test_what_is_too_deep_is_summed_up() -> None:
    deep = [Block(max(0, i - 1), size=8 * i) for i in range(indirect.DEPTH + 4)]
    *_, (names, rest) = rows(grow(deep)[0])
    assert len(names) == indirect.DEPTH + 1
    assert (rest.name, rest.kinds, rest.allocations) == (None, 3, 3)


def test_what_is_cut_off_is_summed_up_but_never_one_kind_alone() -> None:
    wide = [Block(), *(Block(0, size=8 * i) for i in range(1, 5))]
    assert [b.name for b in grow(wide, rows=3)[0]] == ["block"] * 4
    *shown, rest = grow(wide, rows=2)[0]
    assert [b.bytes for b in shown] == [32, 24]
    assert rest == Branch(None, 2, 2, 24, None, None, ())
