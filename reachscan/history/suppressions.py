"""Suppression files: kinds of leaks that are known and should not count.

docs/suppressions.md describes the format.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from reachscan import errors
from reachscan.grouping import folding
from reachscan.grouping.groups import Folding
from reachscan.history import stack_patterns
from reachscan.history.glob import Glob
from reachscan.history.stack_patterns import NonsenseError, StackPattern
from reachscan.judgement import Rule
from reachscan.naming.owners import plain_path
from reachscan.recording import model
from reachscan.recording.origins import NO_STACK
from reachscan.recording.wire_rows import text_of

DEFAULT = Path(__file__).with_name("default.supp")
"""Suppressions of memory that runtimes leak once, by design."""

MAX_TEXT_LENGTH = 64
"""Bytes of a block that are in every scan."""

_MAX_LENGTH = 16 << 20
_COMMENT = re.compile(r"(?:^|\s)#\s*(.*)")
_SIZES = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?")
_STACK = "leak"
_TEXT = "text"
_VALGRIND_BEGIN, _VALGRIND_END = "{", "}"


class Groups:
    """The groups of a scan, prepared for matching rules."""

    def __init__(self, recording: model.Recording, folded: Folding) -> None:
        self._folded = folded
        self._leaks = recording.leaks
        self._program = Path(recording.target.exe).name
        self._paths = folded.joined.space.modules
        self.count = len(folded.example)
        self.withheld = recording.withheld
        self.sizes = folded.size
        self._of_block = folded.group_of_row
        self._is_text = folded.shape[self._of_block] == model.STRING

    @cached_property
    def keys(self) -> list[str]:
        """The key of each group."""
        return folding.keys(self._folded)

    @cached_property
    def signatures(self) -> list[str]:
        """The signature of each group."""
        return [folding.signature_of(self._folded, i) for i in range(self.count)]

    def allocated_by(self, pattern: StackPattern) -> model.Flags:
        """Return which groups have a matching stack, tested innermost frame first."""
        joined, stacks = self._folded.joined, self._folded.stack
        distinct, which = np.unique(stacks, return_inverse=True)
        matching = [
            stack != NO_STACK
            and pattern.matches([joined.frames[call][-1] for call in joined.calls(stack)])
            for stack in distinct.tolist()
        ]
        return np.array(matching, bool)[which.reshape(-1)]

    def with_confidence(self, definite: bool, possible: bool) -> model.Flags:
        """Return which groups are definite, or only possible, leaks."""
        certain: model.Flags = self._folded.reason == model.DEFINITE
        return (certain & definite) | (~certain & possible)

    def of_type(self, pattern: Glob) -> model.Flags:
        """Return which groups have a matching type."""
        matching = [bool(pattern.matches(name)) for name in self._folded.joined.types.names]
        return np.array([*matching, False])[self._folded.type]  # the last one is for -1, no type

    def of_program(self, pattern: Glob) -> model.Flags:
        """Return all groups, or none, by the file name of the program."""
        return np.full(self.count, bool(pattern.matches(self._program)))

    def blocks_beginning_with(self, text: bytes) -> model.Flags:
        """Return which direct leaks are known to begin with a text."""
        if self.withheld:
            return np.ones(len(self._of_block), bool)
        words = self._leaks.words.astype("<u8", copy=False)
        begin = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)[:, : len(text)]
        found: model.Flags = np.all(begin == np.frombuffer(text, np.uint8), axis=1)
        return found

    def blocks_of_size(self, least: int, most: int) -> model.Flags:
        """Return which direct leaks have a size; except for texts, the group's size counts."""
        own = self._leaks.size[self._leaks.heads].astype(np.int64)
        size = np.where(self._is_text, own, self.sizes[self._of_block])
        found: model.Flags = (size >= least) & (size <= most)
        return found

    def consisting_of(self, blocks: model.Flags) -> model.Flags:
        """Return which groups consist only of the given direct leaks."""
        found: model.Flags = np.bincount(self._of_block[~blocks], minlength=self.count) == 0
        return found

    def matching_texts(self, groups: model.Flags) -> model.Flags:
        """Return which direct leaks are texts in some of the groups."""
        found: model.Flags = self._is_text & groups[self._of_block]
        return found

    def pointing_to(self, pattern: Glob, part: int) -> model.Flags:
        """Return which groups have a leading word into a matching module (part 0) or symbol (1)."""
        modules = {Path(plain_path(path)).name for path in self._paths}
        places = [_split(place, modules)[part] for place in folding.places(self._folded)]
        matching = np.array([bool(place and pattern.matches(place)) for place in places])
        found: model.Flags = np.any(matching[self._folded.signature], axis=1)
        return found


def _split(place: str, modules: set[str]) -> tuple[str, str]:
    """Return the module and the symbol of a place; either may contain a `+`."""
    at = len(place)
    while at > 0 and place[:at] not in modules:
        at = place.rfind("+", 0, at)
    return (place[:at], place[at + 1 :]) if at > 0 else ("", "")


Condition = Callable[[Groups], model.Flags]


@dataclass(frozen=True)
class Suppression:
    """One line of a file: it suppresses groups that meet all of its conditions.

    Attributes:
        conditions: functions that return which groups meet them.
        of_blocks: functions that return which direct leaks do; all leaks of a group must.
    """

    rule: Rule
    conditions: tuple[Condition, ...] = ()
    of_blocks: tuple[Condition, ...] = ()
    needs_stack: bool = False
    needs_contents: bool = False

    def suppresses(self, groups: Groups) -> model.Flags:
        """Return the groups that it suppresses."""
        suppressed = np.ones(groups.count, bool)
        for condition in self.conditions:
            if suppressed.any():
                suppressed &= condition(groups)
        for condition in self.of_blocks:
            if suppressed.any():
                suppressed &= groups.consisting_of(condition(groups))
        return suppressed

    def texts(self, groups: Groups) -> model.Flags:
        """Return the direct leaks that it matches among texts, which form one group."""
        found = groups.matching_texts(replace(self, of_blocks=()).suppresses(groups))
        for condition in self.of_blocks:
            if found.any():
                found &= condition(groups)
        return found


def distinct_texts(groups: Groups, suppressions: Sequence[Suppression]) -> model.Indexes:
    """Return the suppression that matches each direct leak among the texts; 0 for none."""
    number = np.zeros(len(groups.matching_texts(np.zeros(groups.count, bool))), np.int64)
    for i, suppression in enumerate(suppressions, 1):
        if suppression.of_blocks:
            number[(number == 0) & suppression.texts(groups)] = i
    return number


def read(path: Path, name: str | None = None) -> list[Suppression]:
    """Read a suppression file.

    Args:
        path: the file.
        name: its name in reports, if not its path.

    Raises:
        SuppressionFileError: it cannot be read, or a line makes no sense.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(_MAX_LENGTH + 1)
    except OSError as error:
        raise errors.SuppressionFileError(f"cannot read {path}: {error.strerror}", "") from error
    except UnicodeDecodeError as error:
        raise errors.SuppressionFileError(f"{path} is not UTF-8 text", "") from error
    if len(text) > _MAX_LENGTH:
        raise errors.SuppressionFileError(
            f"{path} is longer than any list of suppressions ({_MAX_LENGTH >> 20} MiB)"
        )
    return list(parse(text.split("\n"), name or text_of(os.fsencode(path))))


def parse(lines: Iterable[str], name: str) -> Iterable[Suppression]:
    """Yield the suppressions of a file.

    Args:
        lines: lines of the file, without line ends.
        name: name of the file, for errors and reports.

    Raises:
        SuppressionFileError: a line makes no sense.
    """
    block: list[str] = []  # lines of a Valgrind rule so far
    for number, line in enumerate(lines, 1):
        place = f"{name}:{number}"
        try:
            comment = _COMMENT.search(line)
            body = line[: comment.start()].strip() if comment else line.strip()
            if block or body == _VALGRIND_BEGIN:
                block += [body] if body else []
                if body == _VALGRIND_END:
                    yield from _of_valgrind(block[1:-1], place)
                    block = []
            elif body:
                reason = comment[1].strip() if comment else ""
                yield _suppression(body, Rule(body, place, reason))
        except NonsenseError as error:
            raise errors.SuppressionFileError(f"{place}: {error}") from error
    if block:
        raise errors.SuppressionFileError(f"{name}: the last `{{` has no `}}`")


def _of_valgrind(lines: Sequence[str], place: str) -> Iterator[Suppression]:
    """Yield the suppression of lines between braces; nothing if they are not about leaks."""
    found = stack_patterns.of_valgrind(lines)
    if found is not None:
        conditions = (
            lambda groups: groups.allocated_by(found.stack),
            lambda groups: groups.with_confidence(found.definite, found.possible),
        )
        yield Suppression(Rule(found.name, place, ""), conditions, needs_stack=True)


def _suppression(body: str, rule: Rule) -> Suppression:
    if body.startswith(f"{_STACK}:"):
        # A line of LeakSanitizer, in which semicolons and commas are part of the pattern.
        stack = stack_patterns.of_leak_sanitizer(body.removeprefix(f"{_STACK}:").strip())
        return Suppression(rule, (lambda groups: groups.allocated_by(stack),), needs_stack=True)
    parts = [part.strip() for part in body.split(";")]
    conditions: dict[bool, list[Condition]] = {False: [], True: []}
    names = set()
    for part in parts:
        name, condition = _condition(part)
        names.add(name)
        conditions[name in _OF_BLOCKS].append(condition)
    return Suppression(
        rule,
        conditions=tuple(conditions[False]),
        of_blocks=tuple(conditions[True]),
        needs_stack=bool(names & {*stack_patterns.FRAMES}),
        needs_contents=_TEXT in names,
    )


def _condition(text: str) -> tuple[str, Condition]:
    """Return the name of a condition, and the function that finds groups or blocks for it."""
    name, colon, pattern = (part.strip() for part in text.partition(":"))
    if not text:
        raise NonsenseError("a condition is missing before or after a `;`")
    if not colon:
        raise NonsenseError(
            f"`{text}` is not a condition; a condition looks like `type: app::Cache*`"
        )
    if not name:
        raise NonsenseError(f"the name of a condition is missing in `{text}`")
    if name == _STACK:
        raise NonsenseError("`leak:` has to be alone on its line")
    if name not in (*_CONDITIONS, *stack_patterns.FRAMES, *_OF_BLOCKS):
        known = ", ".join((*_CONDITIONS, *stack_patterns.FRAMES, *_OF_BLOCKS, _STACK))
        raise NonsenseError(f"there is no condition `{name}`, only {known}")
    if not pattern:
        raise NonsenseError(f"there is nothing to match after `{name}:`")
    if name in _OF_BLOCKS:
        return name, _OF_BLOCKS[name](pattern)
    if name in stack_patterns.FRAMES:
        stack = stack_patterns.anywhere(name, pattern)
        return name, lambda groups: groups.allocated_by(stack)
    return name, _CONDITIONS[name](Glob(pattern))


def _text(text: str) -> Condition:
    begin = text.encode()
    if len(begin) > MAX_TEXT_LENGTH:
        raise NonsenseError(f"only the first {MAX_TEXT_LENGTH} bytes of a block can be compared")
    return lambda groups: groups.blocks_beginning_with(begin)


def _size(text: str) -> Condition:
    sizes = _SIZES.fullmatch(text)
    if not sizes:
        raise NonsenseError(f"`{text}` is no size in bytes, which looks like `64` or `64-128`")
    low, high = int(sizes[1]), int(sizes[2] or sizes[1])
    if low > high:
        raise NonsenseError(f"the range {low}-{high} is reversed")
    return lambda groups: groups.blocks_of_size(low, high)


def _any_of(texts: list[str], pattern: Glob) -> model.Flags:
    return np.array([bool(pattern.matches(text)) for text in texts], bool)


_CONDITIONS: dict[str, Callable[[Glob], Condition]] = {
    "type": lambda pattern: lambda groups: groups.of_type(pattern),
    "program": lambda pattern: lambda groups: groups.of_program(pattern),
    "key": lambda pattern: lambda groups: _any_of(groups.keys, pattern),
    "signature": lambda pattern: lambda groups: _any_of(groups.signatures, pattern),
    "module": lambda pattern: lambda groups: groups.pointing_to(pattern, 0),
    "symbol": lambda pattern: lambda groups: groups.pointing_to(pattern, 1),
}

_OF_BLOCKS: dict[str, Callable[[str], Condition]] = {"size": _size, _TEXT: _text}
