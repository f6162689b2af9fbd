"""Suppression files: what they match, what they must not, and how they are refused."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loading import load_leaks
from streams import BSS, CODE, CONSTANTS, HEAP_START, Leak, Stream

from reachscan import errors
from reachscan.grouping import folding
from reachscan.history import suppressions
from reachscan.history.glob import Glob
from reachscan.history.review import review
from reachscan.history.suppressions import Groups
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal
from reachscan.result import LeakScan

FOO = CONSTANTS + 8
LEAKS = [
    Leak(24, [FOO]),
    Leak(32, [CODE + 8, HEAP_START]),
    Leak(40, [7, BSS]),
    Leak(64, [int.from_bytes(b"text", "little")]),
    Leak(80, [0, CODE + 64]),
]
NAMES = {
    FOO: model.Name("/usr/lib/libexample.so.1", "vtable for app::Foo", 8),
    CODE + 8: model.Name("/usr/lib/libexample.so.1", "operator+(a, b)", 8),
}
TYPED, NAMED, DATA, TEXT, UNNAMED = 24, 32, 40, 64, 80


@pytest.fixture
def result(tmp_path: Path) -> LeakScan:
    path = tmp_path / "made.rsc"
    types = {FOO: "N3app3FooE"}
    path.write_bytes(Stream(leaks=LEAKS, types=types, names=NAMES).encoded())
    return load_leaks(path)


def suppressed(result: LeakScan, *lines: str) -> set[int]:
    """Return the sizes of the groups that a file of these lines suppresses."""
    groups = Groups(result.recording, result.folding)
    found: set[int] = set()
    for suppression in suppressions.parse(lines, "file"):
        found |= set(groups.sizes[suppression.suppresses(groups)].tolist())
    return found


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("type: app::Foo", {TYPED}),
        ("type: app::*", {TYPED}),
        ("type: app::F?o", {TYPED}),
        ("type: Foo", set()),
        ("type: *", {TYPED}),
        ("type: app::[F]oo", set()),
        ("key: app::Foo", {TYPED}),
        ("key: 32: *", {NAMED}),
        ("key: 64: value | value | value | value", {TEXT}),
        ("signature: text | zero | zero | zero", {TEXT}),
        ("signature: *heap*", {NAMED}),
        ("size: 40", {DATA}),
        ("size: 24-40", {TYPED, NAMED, DATA}),
        ("module: libexample.so*", {TYPED, NAMED, DATA, UNNAMED}),
        ("module: libother*", set()),
        ("module: heap", set()),
        ("module: libexample.so.1+*", set()),
        ("symbol: operator+(a, b)", {NAMED}),
        ("symbol: *", {TYPED, NAMED}),
        ("symbol: 0x*", set()),
        ("module: *; size: 0-32", {TYPED, NAMED}),
        ("  size:40   # because", {DATA}),
        ("program: victim; size: 40", {DATA}),
        ("program: vict*; size: 40", {DATA}),
        ("program: /usr/bin/victim; size: 40", set()),
        ("program: other; size: 40", set()),
        ("text: text", {TEXT}),
        ("text: tex", {TEXT}),
        ("text: textile", set()),
        ("text: t*", set()),
        ("leak:anything", set()),
        ("# size: 40", set()),
        ("", set()),
        ("size: 40\r", {DATA}),
    ],
)
def test_what_a_line_suppresses(result: LeakScan, line: str, sizes: set[int]) -> None:
    assert suppressed(result, line) == sizes


def test_a_text_is_asked_of_every_block_of_a_kind(tmp_path: Path) -> None:
    path = tmp_path / "two.rsc"
    words = [int.from_bytes(text, "little") for text in (b"-Dsun.ja", b"-Duser.x")]
    path.write_bytes(Stream(leaks=[Leak(24, [word]) for word in words]).encoded())
    result = load_leaks(path)
    assert suppressed(result, "text: -Dsun") == set()
    assert suppressed(result, "text: -D") == {24}


def test_reasons_and_places_are_kept() -> None:
    lines = ["# about", "type: {lambda()#1}  # it is so", "size: 8"]
    one, two = suppressions.parse(lines, "f.supp")
    assert (one.rule.text, one.rule.reason) == ("type: {lambda()#1}", "it is so")
    assert (one.rule.source, two.rule.source, two.rule.reason) == ("f.supp:2", "f.supp:3", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "is not a condition; a condition looks like"),
        ("type:", "nothing to match"),
        ("type: a; ", "a condition is missing before or after a `;`"),
        ("; type: a", "a condition is missing"),
        (":x", "the name of a condition is missing in `:x`"),
        ("typ: a", "there is no condition `typ`"),
        ("size: many", "no size in bytes"),
        ("text: " + "x" * 65, "first 64 bytes"),
        ("size: -1", "no size in bytes"),
        ("size: 9-8", "the range 9-8 is reversed"),
        ("size: 99999999999999999999", "no size in bytes"),
        ("size: 8; leak: x", "alone on its line"),
        ("leak:", "nothing to match"),
    ],
)
def test_bad_lines_are_refused_with_their_place(line: str, says: str) -> None:
    with pytest.raises(errors.SuppressionFileError, match=rf"^f\.supp:2: .*{says}") as caught:
        list(suppressions.parse(["", line], "f.supp"))
    assert caught.value.exit_status == errors.ExitStatus.USAGE


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "f.supp"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.SuppressionFileError, match=r"f\.supp"):
        suppressions.read(path)


def test_a_file_that_is_no_list_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(errors.SuppressionFileError, match="longer than any list"):
        suppressions.read(path)


def test_the_defaults_can_be_read_and_say_why() -> None:
    rules: Sequence[suppressions.Suppression] = suppressions.read(suppressions.DEFAULT)
    assert all(suppression.rule.reason for suppression in rules)


def test_reordering_groups_keeps_every_leak_in_its_group(result: LeakScan) -> None:
    order = result.folding.example.argsort()[::-1]
    other = result.folding.reordered(order)
    for old, new in zip_equal(result.folding.group_of_leak, other.group_of_leak):
        assert folding.signature_of(result.folding, old) == folding.signature_of(other, new)
        assert result.folding.size[old] == other.size[new]


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("a*", "a", True),
        ("*a", "a", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("ab*ba", "aba", False),
        ("*ab*ab*", "ab ab", True),
        ("*ab*ab*", "aba b", False),
        ("*a?c", "abc abd", False),
        ("*a?c", "abd abc", True),
        ("a**b", "ab", True),
        ("?*?", "a", False),
        ("?*?", "ab", True),
        ("*\n", "a\nb\n", True),
    ],
)
def test_globs(pattern: str, text: str, expected: bool) -> None:
    assert Glob(pattern).matches(text) is expected


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_globs_match_as_the_shell_has_it(pattern: str, text: str) -> None:
    assert Glob(pattern).matches(text) is fnmatch.fnmatchcase(text, pattern)


def test_a_glob_that_almost_matches_ends() -> None:
    """A matcher that tries every way would not live to see the end of this."""
    assert not Glob("*a" * 50 + "b").matches("a" * 30_000)


def texts(*contents: bytes) -> list[Leak]:
    words = [[int.from_bytes(text[i : i + 8], "little") for i in (0, 8)] for text in contents]
    return [Leak(24 + 16 * i, pair) for i, pair in enumerate(words)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("text: -D", 2),
        ("size: 24-40", 2),
        ("size: 24", 1),
        ("text: -D; size: 24", 1),
        ("key: text", 4),
        ("text: -D; program: other", 0),
        ("text: -D; program: victim", 2),
        ("text: -D; type: *", 0),
    ],
)
def test_of_texts_that_are_one_kind_only_those_named_are_suppressed(
    tmp_path: Path, line: str, expected: int
) -> None:
    path = tmp_path / "made.rsc"
    leaks = texts(b"-Dsome=option", b"lost for good", b"-Dother=option", b"and this too")
    path.write_bytes(Stream(leaks=leaks, shapes=[model.STRING] * 4).encoded())
    judged = review(load_leaks(path), list(suppressions.parse([line], "file")))
    assert judged.counted.allocations == 4 - expected
    assert {group.key for group in judged.groups(10)} == {"text"}
    assert sum(group.allocations for group in judged.groups(10)) == 4
