"""Rules about the stack that allocated blocks: our own, LeakSanitizer's and Valgrind's.

Ours and LeakSanitizer's match one frame, wherever it is. Valgrind's match frame by frame from the
allocation function on, which is in no stack here and is therefore left out.
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
"""What the first frame of Valgrind's rules is, since it takes the place of these functions."""

_NEW = "operator new"
"""What calls malloc() for C++, and may be the innermost frame here."""

FunctionTest = Callable[[Frame], bool]


class NonsenseError(Exception):
    """A line that makes no sense; the text says why."""


class StackPattern(NamedTuple):
    """What frames have to be, one after the other; None stands for any number of them.

    Attributes:
        tests: of the frames from the innermost on. What is outside of these may be anything.
    """

    tests: tuple[FunctionTest | None, ...]

    def matches(self, frames: Sequence[Frame]) -> bool:
        """Tell whether it matches a stack, innermost frame first."""
        # Where the tests so far can have come to: a set of positions instead of trying all ways.
        new = sum(1 for _ in takewhile(_is_new, frames))
        positions = {0, new}
        for test in self.tests:
            if test is None:
                positions = set(range(min(positions, default=len(frames) + 1), len(frames) + 1))
            else:
                positions = {i + 1 for i in positions if i < len(frames) and test(frames[i])}
        return bool(positions)


class ValgrindRule(NamedTuple):
    """A rule of Valgrind: its name, the stack, and which leaks it is about."""

    name: str
    stack: StackPattern
    definite: bool
    possible: bool


def anywhere(kind: str, pattern: str) -> StackPattern:
    """Return what matches stacks with one frame of a kind (`FRAMES`) that matches a pattern."""
    return StackPattern((None, FRAMES[kind](pattern)))


def of_leak_sanitizer(pattern: str) -> StackPattern:
    """Return what a `leak:` line matches: part of the name of any function or module.

    Raises:
        NonsenseError: it is empty.
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
    """Return the rule that lines between braces hold; None if it is about other errors than leaks.

    Raises:
        NonsenseError: they make no sense.
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
    """Return a test of a function's name; that of a mangled one is read as far as that works."""
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
"""What tests a frame, by the words for it."""
