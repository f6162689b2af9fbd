"""Patterns of suppression files."""

from __future__ import annotations

import re


class Glob:
    """A pattern with `*` and `?`. Brackets are no wildcards, since types are full of them.

    The text between two stars is matched at its first occurrence: if any occurrence leads to a
    match, the first one does. So nothing is tried twice, however many stars there are.
    """

    def __init__(self, pattern: str) -> None:
        first, *others = pattern.split("*")
        self._first = _without_stars(first)
        self._middle = [_without_stars(part) for part in others[:-1]]
        self._last = _without_stars(others[-1]) if others else None
        self._length_of_last = len(others[-1]) if others else 0

    def matches(self, text: str) -> bool:
        """Return whether it matches a whole text."""
        if self._last is None:
            return bool(self._first.fullmatch(text))
        found = self._first.match(text)
        for part in self._middle:
            found = found and part.search(text, found.end())
        begin = len(text) - self._length_of_last
        return bool(found and found.end() <= begin and self._last.match(text, begin))


def _without_stars(pattern: str) -> re.Pattern[str]:
    return re.compile("".join("." if c == "?" else re.escape(c) for c in pattern), re.DOTALL)
