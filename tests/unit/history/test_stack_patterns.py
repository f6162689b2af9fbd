"""Rules about stacks: which frames they match, ours, LeakSanitizer's and Valgrind's."""

from __future__ import annotations

import pytest

from reachscan import errors
from reachscan.history import stack_patterns, suppressions
from reachscan.history.stack_patterns import NonsenseError
from reachscan.recording.origins import Frame

STACK = [
    Frame(1, "/usr/lib/libc.so.6", function="strdup"),
    Frame(2, "/opt/app/libshop.so.2", function="shop::Cart::add(int)"),
    Frame(3, "/opt/app/libshop.so.2"),
    Frame(4, "/opt/app/server", function="handle"),
    Frame(5, "/opt/app/server", function="main"),
    Frame(6),
]
NEW = Frame(7, "/usr/lib/libstdc++.so.6", function="operator new(unsigned long)")


@pytest.mark.parametrize(
    ("kind", "pattern", "matches"),
    [
        ("fun", "handle", True),
        ("fun", "hand", False),
        ("fun", "shop::Cart::*", True),
        ("fun", "_ZN4shop4Cart3addEi", True),
        ("fun", "*", True),
        ("obj", "libshop.so*", True),
        ("obj", "/opt/app/*", True),
        ("obj", "app", False),
        ("obj", "libother.so", False),
    ],
)
def test_a_frame_anywhere(kind: str, pattern: str, matches: bool) -> None:
    found = stack_patterns.anywhere(kind, pattern)
    assert found.matches(STACK) is matches
    assert not found.matches([Frame(6)])
    assert not found.matches([])


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("Cart", True),
        ("libshop", True),
        ("^handle$", True),
        ("^hand", True),
        ("^andle", False),
        ("hand$", False),
        ("Cart*int", True),
        ("nothing", False),
    ],
)
def test_leak_sanitizer_matches_parts_of_names(pattern: str, matches: bool) -> None:
    assert stack_patterns.of_leak_sanitizer(pattern).matches(STACK) is matches


@pytest.mark.parametrize(
    ("frames", "matches"),
    [
        (["fun:malloc", "fun:strdup", "fun:shop::*"], True),
        (["fun:strdup", "fun:shop::*"], True),
        (["fun:malloc", "fun:shop::*"], False),
        (["fun:malloc", "...", "fun:handle"], True),
        (["fun:malloc", "...", "fun:handle", "fun:main"], True),
        (["fun:malloc", "...", "fun:main", "fun:handle"], False),
        (["fun:*alloc", "fun:strdup", "fun:*", "obj:*/libshop.so.2", "fun:handle"], True),
        (["fun:malloc", "...", "obj:/opt/app/server", "obj:/opt/app/server"], True),
        (["fun:malloc", "...", "obj:*/server", "obj:*/server", "obj:*/server"], False),
        (["fun:malloc"], True),
        (["...", "...", "fun:main", "..."], True),
    ],
)
def test_valgrind_matches_from_the_innermost_frame_on(frames: list[str], matches: bool) -> None:
    rule = stack_patterns.of_valgrind(["name", "Memcheck:Leak", *frames])
    assert rule is not None and rule.stack.matches(STACK) is matches


@pytest.mark.parametrize("function", ["fun:_Znwm", "fun:operator new(unsigned long)", "fun:malloc"])
def test_operator_new_may_be_a_frame_or_not(function: str) -> None:
    rule = stack_patterns.of_valgrind(["name", "Memcheck:Leak", function, "fun:handle"])
    assert rule is not None
    assert rule.stack.matches([NEW, *STACK[3:]]) and rule.stack.matches(STACK[3:])
    assert not rule.stack.matches(STACK)


@pytest.mark.parametrize(
    ("line", "definite", "possible"),
    [
        ("match-leak-kinds: definite", True, False),
        ("match-leak-kinds: possible,reachable", False, True),
        ("match-leak-kinds: all", True, True),
        ("match-leak-kinds: indirect", False, False),
        ("...", True, True),
    ],
)
def test_valgrind_tells_kinds_of_leaks(line: str, definite: bool, possible: bool) -> None:
    rule = stack_patterns.of_valgrind(["name", "Memcheck,Helgrind:Leak", line, "fun:main"])
    assert rule is not None and (rule.definite, rule.possible) == (definite, possible)


def test_rules_about_other_errors_are_passed_over() -> None:
    lines = ["{", "  name", "  Memcheck:Cond", "  fun:main", "}", "{", "x", "Helgrind:Race", "}"]
    assert list(suppressions.parse(lines, "file")) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["name"],
        ["name", "no kind"],
        ["name", "Memcheck:Leak", "function:main"],
        ["name", "Memcheck:Leak", "fun:"],
    ],
)
def test_nonsense_is_refused(lines: list[str]) -> None:
    with pytest.raises(NonsenseError):
        stack_patterns.of_valgrind(lines)
    with pytest.raises(errors.SuppressionFileError, match="file:"):
        list(suppressions.parse(["{", *lines, "}"], "file"))


def test_a_rule_without_an_end_is_refused() -> None:
    with pytest.raises(errors.SuppressionFileError, match="has no `}`"):
        list(suppressions.parse(["{", "name", "Memcheck:Leak"], "file"))


def test_many_wildcards_take_no_time() -> None:
    frames = [Frame(i, function="f") for i in range(256)]
    rule = stack_patterns.of_valgrind(["n", "Memcheck:Leak", *["...", "fun:f"] * 100, "fun:g"])
    assert rule is not None and not rule.stack.matches(frames)
