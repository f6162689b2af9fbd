"""Folding: every leak is counted once, alike means alike, and order does not matter."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import BSS, CODE, CONSTANTS, DATA, HEAP_START, LIBRARY_PATH, Leak, Stream

from reachscan.analyse import analyse
from reachscan.grouping import folding
from reachscan.grouping.groups import Example, Folding, Group, SizeCount
from reachscan.recording import model, wire
from reachscan.recording.decode import decode

FOO, BAR = CONSTANTS + 0x100, CONSTANTS + 0x200
TYPES = {FOO: "N3app3FooE", BAR: "N3app3BarE"}
TEXT_WORD = int.from_bytes(b"lettered", "little")
STALE = ("24: value | value | heap", 2)
NAMES = {
    CODE + 8: model.Name(LIBRARY_PATH, "work", 8),
    CODE + 9: model.Name(LIBRARY_PATH, "work", 9),
}


def fold(
    leaks: list[Leak], contents: dict[int, bytes] | None = None, shapes: Sequence[int] = ()
) -> tuple[model.Recording, Folding, list[Group]]:
    stream = Stream(leaks=leaks, types=TYPES, contents=contents or {}, shapes=shapes)
    recording = decoded(stream, NAMES)
    folded = analyse(recording, root="/")
    return recording, folded, folding.groups(recording, folded, 1 << 30, 20, {})


def decoded(stream: Stream, names: dict[int, model.Name] | None = None) -> model.Recording:
    recording = decode(wire.frames(io.BytesIO(stream.encoded())))
    return recording._replace(names=names or {})


def groups(*leaks: Leak) -> list[Group]:
    return fold(list(leaks))[2]


PLACES = [HEAP_START + 64, CODE + 8, CODE + 9, CODE + 64, FOO, BAR, DATA, BSS, CONSTANTS]
words = st.sampled_from([0, 1, 70000, 2**63, *PLACES]) | st.integers(0, 2**64 - 1)
some_leaks = st.lists(
    st.builds(
        Leak,
        size=st.sampled_from([0, 8, 24, 24, 24, 40]),
        words=st.lists(words, max_size=5),
        below=st.lists(st.sampled_from([0, 8, 100]), max_size=3),
    ),
    max_size=30,
)


@given(some_leaks)
def test_every_leak_is_counted_once(leaks: list[Leak]) -> None:
    recording, folded, found = fold(leaks)
    totals = recording.totals
    assert sum(g.allocations for g in found) == totals.direct
    assert sum(g.bytes for g in found) == totals.direct_bytes
    assert sum(g.allocations + g.indirect_allocations for g in found) == totals.leaked
    assert sum(g.bytes + g.indirect_bytes for g in found) == totals.leaked_bytes
    assert len(folded.group_of_leak) == totals.leaked
    counted = np.bincount(folded.group_of_leak, minlength=len(found))
    assert counted.tolist() == [g.allocations + g.indirect_allocations for g in found]


@given(some_leaks, st.randoms(use_true_random=False))
def test_order_of_heads_does_not_matter(leaks: list[Leak], chance: random.Random) -> None:
    placed = [
        Leak(leak.size, leak.words, leak.below, HEAP_START + 0x1000 * i)
        for i, leak in enumerate(leaks)
    ]
    shuffled = placed.copy()
    chance.shuffle(shuffled)
    assert groups(*placed) == groups(*shuffled)


@given(some_leaks)
def test_largest_group_comes_first(leaks: list[Leak]) -> None:
    amounts = [(g.bytes + g.indirect_bytes, g.allocations) for g in fold(leaks)[2]]
    assert amounts == sorted(amounts, reverse=True)


@given(some_leaks)
def test_members_of_a_group_agree_on_type_or_size(leaks: list[Leak]) -> None:
    recording, folded, found = fold(leaks)
    heads = recording.leaks.heads
    for head in heads:
        group = found[folded.group_of_leak[head]]
        assert group.type or int(recording.leaks.size[head]) - group.size in (0, folding.REST)


def test_same_type_folds_whatever_its_size() -> None:
    (group,) = groups(Leak(24, [FOO, 1]), Leak(40, [FOO, HEAP_START]), Leak(64, [FOO, 5, CODE]))
    assert group.type == "app::Foo"
    assert (group.allocations, group.bytes, group.size) == (3, 128, 24)


def test_types_do_not_mix() -> None:
    assert {g.type for g in groups(Leak(24, [FOO]), Leak(24, [BAR]))} == {"app::Foo", "app::Bar"}


def test_a_vtable_beyond_the_first_word_is_no_type() -> None:
    (group,) = groups(Leak(24, [0, FOO]))
    assert group.type is None
    assert group.signature == "zero | libexample.so.1 | zero"


def test_size_tells_blocks_apart() -> None:
    assert len(groups(Leak(24), Leak(40))) == 2


def test_plain_values_do_not_tell_blocks_apart() -> None:
    text = int.from_bytes(b"hello", "little")
    (group,) = groups(
        Leak(32, [0, 7, text, 1 << 40]), Leak(32, [1, 9, text, 1 << 41]), Leak(32, [1, 9, text, 5])
    )
    assert group.signature == "\N{MIDDLE DOT} | int | text | \N{MIDDLE DOT}"


def test_symbols_tell_blocks_apart_but_offsets_into_them_do_not() -> None:
    found = groups(Leak(8, [CODE + 8]), Leak(8, [CODE + 9]), Leak(8, [CODE + 64]))
    assert [(g.allocations, g.signature) for g in found] == [
        (2, "libexample.so.1+work"),
        (1, "libexample.so.1+0x1040"),
    ]


def test_keys_are_the_same_in_another_process_and_another_build() -> None:
    text, moved = int.from_bytes(b"hello", "little"), 0x5000
    (one,) = groups(Leak(24, [CODE + 64, 7, HEAP_START]))
    (two,) = groups(Leak(24, [CODE + 80, text, HEAP_START + moved]))
    assert one.signature != two.signature
    assert one.key == two.key == "24: libexample.so.1 | value | heap"


def test_keys_tell_what_folding_tells_apart() -> None:
    found = groups(Leak(24), Leak(40), Leak(40, [CODE + 8]), Leak(40, [FOO]), Leak(0))
    assert {g.key for g in found} == {
        "24: value | value | value",
        "40: value | value | value | value",
        "40: libexample.so.1+work | value | value | value",
        "app::Foo",
        "0",
    }


def test_where_a_data_pointer_points_does_not_matter() -> None:
    (group,) = groups(Leak(16, [0, DATA]), Leak(16, [0, BSS + 5]), Leak(16, [0, CONSTANTS + 4]))
    assert group.signature == "zero | libexample.so.1"


def test_a_first_word_to_constants_is_exact() -> None:
    assert len(groups(Leak(8, [CONSTANTS + 0x10]), Leak(8, [CONSTANTS + 0x20]))) == 2


def test_heap_pointers_are_alike() -> None:
    (group,) = groups(Leak(8, [HEAP_START + 5]), Leak(8, [HEAP_START + 5000]))
    assert group.signature == "heap"


def test_words_past_the_end_of_a_block_are_not_looked_at() -> None:
    (group,) = groups(Leak(12, [5, CODE + 8]), Leak(12, [5, HEAP_START]))
    assert group.signature == "int"


def test_negative_and_extreme_words() -> None:
    (group,) = groups(Leak(24, [2**64 - 1, 2**63, 0x41]))
    assert group.signature == "int | data | int"


def test_text_with_a_hole_is_data() -> None:
    (group,) = groups(Leak(16, [int.from_bytes(b"ab\0\0abcd", "little"), 0x0A41_4141]))
    assert group.signature == "data | text"


def test_the_example_is_the_lowest_block() -> None:
    (group,) = groups(Leak(8, [2], address=HEAP_START + 64), Leak(8, [1], address=HEAP_START))
    assert group.example == Example(HEAP_START, 8, bytes([1, 0, 0, 0, 0, 0, 0, 0]))


def test_the_example_has_contents_if_any_member_has() -> None:
    leaks = [Leak(100, address=HEAP_START), Leak(100, address=HEAP_START + 512)]
    (group,) = fold(leaks, {1: b"z" * 100})[2]
    assert group.example == Example(HEAP_START + 512, 100, b"z" * 100)


def test_contents_never_exceed_the_block() -> None:
    (group,) = fold([Leak(10, [1, 2])], {0: b"z" * 100})[2]
    assert group.example.contents == b"z" * 10


def test_blocks_below_belong_to_the_group_of_their_head() -> None:
    _, folded, found = fold([Leak(8, [1], [100, 50]), Leak(24, [1]), Leak(8, [2], [7])])
    assert folded.group_of_leak.tolist() == [0, 0, 0, 1, 0, 0]
    assert (found[0].indirect_allocations, found[0].indirect_bytes) == (3, 157)


def test_nothing_leaked() -> None:
    assert groups() == []


def test_the_shape_of_most_blocks_is_the_shape_of_their_group() -> None:
    found = [Leak(24, [HEAP_START]), Leak(24, [HEAP_START + 16]), Leak(24, [HEAP_START + 8])]
    array = model.POINTER_ARRAY
    assert shape_of(found, [array, model.UNKNOWN_SHAPE, array]) == "pointer array"
    assert shape_of(found, [array, model.VECTOR_BODY, 77]) is None
    found.append(Leak(24, [HEAP_START + 32]))
    assert shape_of(found, [array, array, model.VECTOR_BODY, 77]) is None
    assert shape_of([Leak(24, [FOO])], [model.TREE_NODE]) is None  # its type says more


def shape_of(leaks: list[Leak], shapes: list[int]) -> str | None:
    stream = Stream(leaks=leaks, types=TYPES, shapes=shapes)
    recording = decoded(stream)
    (group,) = folding.groups(recording, analyse(recording, root="/"), 9, 9, {})
    return group.shape


def test_kinds_of_live_blocks_count_for_all_that_are_alike() -> None:
    many, few = (5, 120, 24, HEAP_START, 0, 2), (1, 24, 24, HEAP_START + 64, 1, 2)
    other = (2, 80, 40, HEAP_START + 128, 1, 0)
    stream = Stream(types=TYPES, kinds=[(*many, [1]), (*few, [0]), (*other, [FOO])])
    recording = decoded(stream)
    folded = analyse(recording, root="/")
    nodes, objects = folding.groups(recording, folded, 9, 9, {})
    assert (nodes.allocations, nodes.bytes, nodes.size, nodes.shape) == (6, 144, 24, "list node")
    assert (nodes.indirect_allocations, nodes.indirect_bytes) == (0, 0)
    assert nodes.sizes == (SizeCount(24, 6, 144),)
    assert nodes.example.address == HEAP_START
    assert nodes.example.contents == bytes([1, *[0] * 23])
    assert (objects.type, objects.allocations, objects.bytes) == ("app::Foo", 2, 80)
    assert folded.group_of_row.tolist() == [0, 0, 1]


def test_variables_are_told_apart_by_name_and_not_by_address() -> None:
    known, other, unknown = DATA + 0x10, DATA + 0x18, DATA + 0x20
    names = {a: model.Name(LIBRARY_PATH, "TypeOfList", a - known) for a in (known, other)}
    leaks = [Leak(24, [i, a]) for i, a in enumerate((known, other, unknown, unknown + 8))]
    leaks += [Leak(24, [7, 7, known])]  # too far from the begin to say what the block is
    recording = decoded(Stream(leaks=leaks), names)
    folded = analyse(recording, root="/")
    found = {(g.allocations, g.signature) for g in folding.groups(recording, folded, 9, 9, {})}
    library = "libexample.so.1"
    assert found == {
        (2, f"\N{MIDDLE DOT} | {library}+TypeOfList | zero"),
        (2, f"int | {library} | zero"),
        (1, f"int | int | {library}"),
    }


def test_the_ends_of_a_list_are_of_the_same_kind_as_its_middle() -> None:
    found = [Leak(40, [HEAP_START, HEAP_START + 8, 7]), Leak(40, [DATA, HEAP_START, 70000])]
    trees = [Leak(40, [1, HEAP_START, 0, 0]), Leak(40, [0, HEAP_START, HEAP_START, 0])]
    chain = [Leak(40, [0, HEAP_START, 7]), Leak(40, [0, HEAP_START, 7])]
    shapes = [model.LIST_NODE] * 2 + [model.TREE_NODE] * 2 + [model.CHAIN_NODE, 0]
    stream = Stream(leaks=[*found, *trees, *chain], shapes=shapes)
    recording = decoded(stream)
    grouped = folding.groups(recording, analyse(recording, root="/"), 9, 9, {})
    assert sorted((g.allocations, g.signature, g.key) for g in grouped) == [
        (1, "link | heap | int | zero", "40: link | heap | value | value"),
        (1, "zero | heap | int | zero", "40: value | heap | value | value"),
        (2, "link | link | \N{MIDDLE DOT} | zero", "40: link | link | value | value"),
        (2, "\N{MIDDLE DOT} | link | link | link", "40: value | link | link | link"),
    ]


@pytest.mark.parametrize(
    ("word", "what"),
    [(1, "int"), (int.from_bytes(b"texttext", "little"), "text"), (0xDADA_DADA_DADA_DADA, "data")],
)
def test_words_that_stand_for_others_are_of_their_class(word: int, what: str) -> None:
    assert groups(Leak(8, [word]))[0].signature == what


def test_few_blocks_that_got_the_rest_of_a_chunk_are_of_the_kind_without() -> None:
    usual = [Leak(72, [HEAP_START]) for _ in range(16)]
    (group,) = groups(Leak(88, [HEAP_START]), *usual, Leak(88, [HEAP_START]))
    assert (group.allocations, group.size, group.example.size) == (18, 72, 72)
    assert group.key == "72: heap | value | value | value"
    assert [(row.size, row.allocations) for row in group.sizes] == [(72, 16), (88, 2)]


def test_the_rest_of_a_chunk_is_left_out_once_only() -> None:
    found = groups(*[Leak(size, [HEAP_START]) for size in [72] * 64 + [88] * 8 + [104]])
    assert [(group.size, group.allocations) for group in found] == [(72, 72), (104, 1)]
    assert found[1].signature == "heap | zero | zero | zero"


@pytest.mark.parametrize(
    "other", [[Leak(88, [HEAP_START])] * 3, [Leak(104, [HEAP_START])], [Leak(88, [5, HEAP_START])]]
)
def test_other_sizes_are_other_kinds(other: list[Leak]) -> None:
    assert len(groups(*[Leak(72, [HEAP_START]) for _ in range(16)], *other)) == 2


def strings(*sizes: int, word: int = TEXT_WORD, below: int = 0) -> list[Leak]:
    return [Leak(size, [word] * (size // 8), [8] * below) for size in sizes]


def kinds_of(leaks: list[Leak], shapes: list[int]) -> list[tuple[str, int]]:
    return [(g.key, g.allocations) for g in fold(leaks, shapes=shapes)[2]]


def test_texts_of_all_lengths_are_one_kind() -> None:
    leaks = strings(24, 40, 56, 56, 1000, 4096)
    assert kinds_of(leaks, [model.STRING] * 6) == [("text", 6)]
    (group,) = fold(leaks, shapes=[model.STRING] * 6)[2]
    assert (group.shape, group.signature) == ("text", "text")
    assert sum(row.allocations for row in group.sizes) == 6 and len(group.sizes) == 5


def test_structs_that_begin_with_a_text_keep_their_size() -> None:
    buffers = strings(104, 104, 200)
    assert kinds_of(buffers, [model.TEXT] * 3) == [
        ("104: value | value | value | value", 2),
        ("200: value | value | value | value", 1),
    ]
    owners = strings(104, 104, below=1)
    shapes = [model.STRING, 0, model.STRING, 0]
    assert kinds_of(owners, shapes) == [("104: value | value | value | value", 2)]
    named = [Leak(24, [TEXT_WORD, 0, HEAP_START + 64])] * 3
    both = strings(24, 24, 24) + named
    found = dict(kinds_of(both, [model.STRING] * 6))
    assert found == {"text": 3, "24: value | value | heap": 3}


def test_a_stale_pointer_behind_few_texts_does_not_set_them_apart() -> None:
    stale = Leak(24, [TEXT_WORD, 0, HEAP_START + 64])
    for texts, expected in ((16, [("text", 18)]), (15, [("text", 15), STALE])):
        leaks = [*strings(*[24] * texts), stale, stale]
        assert kinds_of(leaks, [model.STRING] * len(leaks)) == expected


def test_texts_too_short_to_tell_join_the_others_of_their_size() -> None:
    shapes = [model.STRING] * 3 + [0] * 2
    assert kinds_of(strings(24, 24, 24, 24, 24), shapes) == [("text", 5)]
    assert kinds_of(strings(24, 24, 24, 24), [0, 0, model.STRING, model.STRING]) == [
        ("24: value | value | value", 4)
    ]


def test_letters_that_are_an_address_are_no_text() -> None:
    """Six letters, the upper ones as in addresses of the heap, as a free list leaves them."""
    near = (HEAP_START & ~0xF_FFFF_FFFF) | 0x6_2121_2121
    far = near ^ (1 << 36)
    found = {g.signature for g in groups(Leak(8, [near]), Leak(16, [far]))}
    assert near.to_bytes(8, "little") == b"!!!!VU\0\0"
    assert found == {"data", "text | zero"}


def string(address: int, text: bytes, room: int, size: int = 56) -> Leak:
    """Return a block that begins with a short std::string, and a word behind its characters."""
    (characters,) = struct.unpack("<Q", text.ljust(8, b"\0"))
    return Leak(size, [address + 16, len(text), characters, room], address=address)


def test_unused_room_of_strings_tells_nothing_apart() -> None:
    stale, start = HEAP_START + 64, HEAP_START + 0x10000
    users = [string(start + 0x100 * i, b"name", stale * (i % 2)) for i in range(4)]
    buffer = start + 0x1000
    text = Leak(40, [TEXT_WORD], address=buffer)
    users += [Leak(56, [buffer, 25, 30, room], address=start + 0x800) for room in (0, stale)]
    found = {(g.key, g.allocations) for g in groups(*users, text)}
    assert found >= {("56: heap | value | value | value", 6)}


def test_a_pointer_behind_what_is_no_string_tells_blocks_apart() -> None:
    other, start = HEAP_START + 64, HEAP_START + 0x10000
    buffer, text = start + 0x1000, Leak(40, [TEXT_WORD], address=start + 0x1000)
    for words in ([start + 24, 4, 0], [start + 16, 16, 0], [buffer, 4, 300], [buffer, 31, 30]):
        pair = [Leak(56, [*words, last], address=start) for last in (0, other)]
        assert len(groups(*pair, text)) == 3, words


def test_the_rest_of_a_chunk_tells_nothing_apart() -> None:
    small = [Leak(24, [HEAP_START + 64, 5, 7])] * 8
    rest = Leak(40, [HEAP_START + 64, 5, 7, HEAP_START + 64])
    (group,) = groups(*small, rest)
    assert (group.key, group.allocations) == ("24: heap | value | value", 9)
    assert group.signature == "heap | int | int"
    assert len(groups(*small[1:], rest)) == 2
