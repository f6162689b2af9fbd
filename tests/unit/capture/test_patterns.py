"""Expressions of --module and --thread mean what they mean to grep -E."""

from __future__ import annotations

import subprocess
import tempfile

import pytest

from reachscan.capture import patterns

TEXTS = [
    *("", "a", "ab", "abc", "aab", "abab", "b", "xaby", "a.b", "a+b", "AB", "a]b", "-", "^", "äb"),
    *("/usr/lib/libssl.so.3", "/opt/plugins/codec-2.so", "/opt/plugins/codec-10.so", "worker-17"),
]
EXPRESSIONS = [
    *(
        "a",
        "^a",
        "b$",
        "^ab$",
        "a*b",
        "^a+b$",
        "a?b",
        "^$",
        "^(ab)*$",
        "^(a|b)+$",
        "ab|^x|y$",
        "()",
    ),
    *("a.b", r"a\.b", r"a\+b", "[ab]c", "[^a]b", "^[a-c]+$", "[]a]b", "[^]a]b", "[a-]", "[-a]"),
    *(
        "^[[:alpha:]]+$",
        "[[:upper:][:digit:]]",
        "a{2}",
        "^(ab){1,2}$",
        "^a{0,1}b",
        "b{2,}",
        "a{,1}"[:0],
    ),
    *(r"libssl\.so", r"^/opt/plugins/.*-[0-9]{2}\.so$", "^worker-[0-9]+$", "(a|b)(b|c)?$", "((a))"),
    *("(a*)*b", "(a|ab)(c|bcd)*", "a**", "^ä"),
]


def matches(steps: list[patterns.Step], text: bytes) -> bool:
    """Run the steps as native/recorder/pattern.hpp does."""

    def reached(start: int, at: int) -> set[int]:
        found, waiting = set(), [start]
        while waiting:
            step = waiting.pop()
            if step in found:
                continue
            found.add(step)
            kind, first, second = steps[step]
            if kind == 2:
                waiting += [first, second]
            if (kind == 3 and at == 0) or (kind == 4 and at == len(text)):
                waiting.append(step + 1)
        return found

    now: set[int] = set()
    for at in range(len(text) + 1):
        now |= reached(0, at)
        if any(steps[step][0] == 0 for step in now):
            return True
        if at < len(text):
            followed = [
                s for s in now if steps[s][0] == 1 and steps[s][1] <= text[at] <= steps[s][2]
            ]
            now = set().union(*(reached(step + 1, at + 1) for step in followed))
    return False


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_matches_are_those_of_grep(expression: str) -> None:
    steps = patterns.compiled(expression)
    with tempfile.NamedTemporaryFile() as file:
        file.write("".join(text + "\n" for text in TEXTS).encode())
        file.flush()
        grep = ["grep", "-aE", "-e", expression, file.name]
        done = subprocess.run(grep, capture_output=True, env={"LC_ALL": "C"}, check=False)
    assert done.returncode < 2, done.stderr
    expected = done.stdout.decode().splitlines()
    assert [text for text in TEXTS if matches(steps, text.encode())] == expected


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "[a", "[b-a]", "[[:nope:]]", "[[.a.]]", "*a", "a|*b", "a{", "a{x}"),
        *("a{2,1}", "\\d", "a\\", "(a{200}){200}", "a" * 600),
        "(" * 500 + ")" * 500,
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(patterns.PatternError):
        patterns.compiled(expression)
