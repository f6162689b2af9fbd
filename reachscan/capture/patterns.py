"""POSIX extended regular expressions, compiled for the recorder (native/recorder/pattern.hpp).

The recorder has no C library, and matches modules that are loaded long after it got its options.
"""

from __future__ import annotations

import itertools
import os
import string
from collections.abc import Sequence

MAX_STEPS = 512
"""Maximum number of steps that the recorder accepts."""

_MATCH, _RANGE, _SPLIT, _BEGIN, _END = range(5)
_MAX_REPEATS = 255
_MAX_DEPTH = 100
"""Parentheses within each other, for each of which the parser calls itself."""
_ANY = ((1, 255),)
_CLASSES = {
    "alpha": string.ascii_letters,
    "digit": string.digits,
    "alnum": string.ascii_letters + string.digits,
    "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase,
    "space": string.whitespace,
    "blank": " \t",
    "punct": string.punctuation,
    "print": string.printable[:95],
    "graph": string.printable[:94],
    "cntrl": "".join(map(chr, [*range(1, 32), 127])),
    "xdigit": string.hexdigits,
}

Step = tuple[int, int, int]
"""A kind and two numbers; jumps name a step by its distance from the first one."""


class PatternError(ValueError):
    """The text is not an extended regular expression; the message says why."""


def compiled(text: str) -> list[Step]:
    """Compile an expression into the steps that search a text for it.

    Raises:
        PatternError: it is not a valid expression, or too long.
    """
    parser = _Parser(os.fsencode(text))
    steps = [*parser.alternatives(), (_MATCH, 0, 0)]
    if parser.rest:
        raise PatternError("there is a ) without a (")
    if len(steps) > MAX_STEPS:
        raise PatternError("it is too long, or repeats too much")
    return steps


class _Parser:
    def __init__(self, text: bytes) -> None:
        self.rest = text
        self._depth = 0

    def alternatives(self) -> list[Step]:
        steps = self._sequence()
        while self._skip(b"|"):
            steps = _either(steps, self._sequence())
        return steps

    def _sequence(self) -> list[Step]:
        steps: list[Step] = []
        while self.rest and self.rest[:1] not in b"|)":
            piece = self._repeated(self._piece())
            steps += _moved(piece, len(steps))
        return steps

    def _piece(self) -> list[Step]:
        byte, self.rest = self.rest[:1], self.rest[1:]
        if byte == b"(":
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise PatternError(f"more than {_MAX_DEPTH} parentheses are nested")
            inner = self.alternatives()
            self._depth -= 1
            if not self._skip(b")"):
                raise PatternError("there is a ( without a )")
            return inner
        if byte == b"^":
            return [(_BEGIN, 0, 0)]
        if byte == b"$":
            return [(_END, 0, 0)]
        if byte == b".":
            return _one_of(_ANY)
        if byte == b"[":
            return _one_of(self._bracket())
        if byte in b"*+?{":
            raise PatternError(f"there is nothing before {byte.decode()} to repeat")
        if byte == b"\\":
            byte, self.rest = self.rest[:1], self.rest[1:]
            if not byte or byte.isalnum():
                raise PatternError("a \\ stands before a letter, a digit, or nothing")
        return [(_RANGE, byte[0], byte[0])]

    def _repeated(self, piece: list[Step]) -> list[Step]:
        while self.rest[:1] and self.rest[:1] in b"*+?{":
            if self._skip(b"*"):
                piece = _any_number(piece)
            elif self._skip(b"+"):
                piece = [*piece, *_moved(_any_number(piece), len(piece))]
            elif self._skip(b"?"):
                piece = _either(piece, [])
            else:
                piece = self._counted(piece)
        return piece

    def _counted(self, piece: list[Step]) -> list[Step]:
        bounds, closed, self.rest = self.rest[1:].partition(b"}")
        least, comma, most = bounds.partition(b",")
        if not closed or not least.isdigit() or (most and not most.isdigit()):
            raise PatternError("what stands in { } is no number of repeats")
        first, last = int(least), int(most or least)
        if last < first or last > _MAX_REPEATS:
            raise PatternError(f"it cannot be repeated {bounds.decode()} times")
        steps = _joined([piece] * first)
        if comma and not most:
            return _joined([steps, _any_number(piece)])
        rest: list[Step] = []
        for _ in range(last - first):
            rest = _either(_joined([piece, rest]), [])
            _refuse_long(rest)
        return _joined([steps, rest])

    def _bracket(self) -> list[tuple[int, int]]:
        inverted = self._skip(b"^")
        held: set[int] = set()
        is_first = True
        while is_first or not self._skip(b"]"):
            is_first = False
            if self.rest.startswith(b"[:"):
                name, closed, self.rest = self.rest[2:].partition(b":]")
                if not closed or name.decode("ascii", "replace") not in _CLASSES:
                    raise PatternError("there is no such class of characters")
                held |= set(_CLASSES[name.decode()].encode())
            else:
                held |= set(self._bracket_range())
        if inverted:
            held = set(range(1, 256)) - held
        return _ranges(held)

    def _bracket_range(self) -> range:
        if not self.rest or self.rest[:2] in (b"[.", b"[="):
            raise PatternError("there is a [ without a ], or a collating element")
        first, self.rest = self.rest[0], self.rest[1:]
        last = first
        if self.rest[:1] == b"-" and self.rest[1:2] not in (b"", b"]"):
            last, self.rest = self.rest[1], self.rest[2:]
        if last < first:
            raise PatternError("a range in [ ] ends before it begins")
        return range(first, last + 1)

    def _skip(self, byte: bytes) -> bool:
        found = self.rest.startswith(byte)
        self.rest = self.rest[len(byte) :] if found else self.rest
        return found


def _ranges(held: set[int]) -> list[tuple[int, int]]:
    """Return the ranges of consecutive bytes."""
    found = []
    for _, group in itertools.groupby(enumerate(sorted(held)), lambda pair: pair[1] - pair[0]):
        bytes_ = [byte for _, byte in group]
        found.append((bytes_[0], bytes_[-1]))
    return found


def _one_of(ranges: Sequence[tuple[int, int]]) -> list[Step]:
    steps: list[Step] = [(_RANGE, 1, 0)] if not ranges else [(_RANGE, *ranges[-1])]
    for first, last in reversed(ranges[:-1]):
        steps = _either([(_RANGE, first, last)], steps)
    return steps


def _moved(steps: Sequence[Step], by: int) -> list[Step]:
    return [(k, a + by, b + by) if k == _SPLIT else (k, a, b) for k, a, b in steps]


def _refuse_long(steps: Sequence[Step]) -> None:
    if len(steps) > MAX_STEPS:
        raise PatternError("it is too long, or repeats too much")


def _joined(parts: Sequence[Sequence[Step]]) -> list[Step]:
    steps: list[Step] = []
    for part in parts:
        steps += _moved(part, len(steps))
        _refuse_long(steps)
    return steps


def _either(one: Sequence[Step], other: Sequence[Step]) -> list[Step]:
    second = len(one) + 2
    end = second + len(other)
    return [
        (_SPLIT, 1, second),
        *_moved(one, 1),
        (_SPLIT, end, end),
        *_moved(other, second),
    ]


def _any_number(piece: Sequence[Step]) -> list[Step]:
    end = len(piece) + 2
    return [(_SPLIT, 1, end), *_moved(piece, 1), (_SPLIT, 0, 0)]
