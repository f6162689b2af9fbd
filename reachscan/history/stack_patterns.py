"""Rules about the stacks that allocated blocks: our own, LeakSanitizer's and Valgrind's.

Our rules and LeakSanitizer's match one frame anywhere in the stack. Valgrind's match frame by frame
from the allocation function outwards; that function is not in our stacks, so it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from reachscan.history.glob import Glob
from reachscan.naming import demangle
from reachscan.recording.origins import Frame

_ANY_FRAMES = "..."
_ALLOCATORS = (
    *("malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc"),
    *("posix_memalign", "valloc", "pvalloc", "_Znwm", "_Znam"),
    *("operator new(unsigned long)", "operator new[](unsigned long)"),
)
"""First frames of Valgrind's rules, since Valgrind replaces these functions."""

_NEW = "operator new"
"""C++ functions that call malloc(), which may be the innermost frame here."""

FunctionTest = Callable[[Frame], bool]


class NonsenseError(Exception):
    """The line makes no sense; the message says why."""


class StackPattern(NamedTuple):
    """Tests of consecutive frames; None stands for any number of frames.

    Attributes:
        tests: tests of the frames, from the innermost outwards. Further frames do not matter.
    """

    tests: tuple[FunctionTest | None, ...]

    def matches(self, frames: Sequence[Frame]) -> bool:
        """Return whether it matches a stack, given innermost frame first."""
        # The positions that the tests so far can have reached: a set instead of backtracking.
        new = sum(1 for _ in takewhile(_is_new, frames))
        positions = {0, new}
        for test in self.tests:
            if test is None:
                positions = set(range(min(positions, default=len(frames) + 1), len(frames) + 1))
            else:
                positions = {i + 1 for i in positions if i < len(frames) and test(frames[i])}
        return bool(positions)


class ValgrindRule(NamedTuple):
    """A rule of Valgrind: its name, the stack, and the kinds of leaks."""

    name: str
    stack: StackPattern
    definite: bool
    possible: bool


def anywhere(kind: str, pattern: str) -> StackPattern:
    """Return a pattern for stacks in which a frame's function or module (`FRAMES`) matches."""
    return StackPattern((None, FRAMES[kind](pattern)))


def of_leak_sanitizer(pattern: str) -> StackPattern:
    """Return the pattern of a `leak:` line: part of the name of any function or module.

    Raises:
        NonsenseError: the pattern is empty.
    """
    if not pattern:
        raise NonsenseError("there is nothing to match after `leak:`")
    begin = pattern.removeprefix("^") if pattern.startswith("^") else f"*{pattern}"
    glob = Glob(begin.removesuffix("$") if begin.endswith("$") else f"{begin}*")

    def test(frame: Frame) -> bool:
        return any(
            name is not None and glob.matches(name) for name in (frame.function, frame.module)
        )

    return StackPattern((None, test))


def of_valgrind(lines: Sequence[str]) -> ValgrindRule | None:
    """Return the rule in the lines between braces; None if it is not about leaks.

    Raises:
        NonsenseError: the lines make no sense.
    """
    if len(lines) < 2:
        raise NonsenseError("a rule of Valgrind has a name, a kind and frames, each on its line")
    name, kind, *frames = lines
    tool, colon, what = kind.partition(":")
    if not colon:
        raise NonsenseError(f"`{kind}` is no kind of error, which looks like `Memcheck:Leak`")
    if what.strip() != "Leak" or "Memcheck" not in tool.split(","):
        return None
    wanted = {"definite", "possible"}
    tests: list[FunctionTest | None] = []
    for line in frames:
        key, _, pattern = (part.strip() for part in line.partition(":"))
        if key == "match-leak-kinds":
            kinds = {word.strip() for word in pattern.split(",")}
            wanted = wanted if "all" in kinds else kinds
        elif line == _ANY_FRAMES:
            tests.append(None)
        elif key in FRAMES and pattern:
            if tests or not (key == "fun" and any(map(Glob(pattern).matches, _ALLOCATORS))):
                tests.append(FRAMES[key](pattern))
        else:
            raise NonsenseError(f"`{line}` is no frame: fun:NAME, obj:FILE or ...")
    stack = StackPattern(tuple(tests))
    return ValgrindRule(name, stack, "definite" in wanted, "possible" in wanted)


def _is_new(frame: Frame) -> bool:
    return (frame.function or "").startswith(_NEW)


def _function(pattern: str) -> FunctionTest:
    """Return a test of a function's name; mangled names are demangled if possible."""
    glob = Glob(demangle.symbol_name(pattern))
    return lambda frame: frame.function is not None and glob.matches(frame.function)


def _module(pattern: str) -> FunctionTest:
    """Return a test of a file: its path, or its name if the pattern is no path."""
    glob = Glob(pattern)

    def test(frame: Frame) -> bool:
        path = frame.module or ""
        return bool(path) and (glob.matches(path) or glob.matches(path.rpartition("/")[2]))

    return test


FRAMES = {"fun": _function, "obj": _module}
"""Functions that test a frame, by keyword."""
