"""Patterns of suppression files."""

from __future__ import annotations

import re


class Glob:
    """A pattern with `*` and `?`; brackets are no wildcards, for types are full of them.

    What lies between two stars is taken where it is found first: if any place will do, that one
    will. So nothing is tried twice, however many stars there are.
    """

    def __init__(self, pattern: str) -> None:
        first, *others = pattern.split("*")
        self._first = _without_stars(first)
        self._middle = [_without_stars(part) for part in others[:-1]]
        self._last = _without_stars(others[-1]) if others else None
        self._length_of_last = len(others[-1]) if others else 0

    def matches(self, text: str) -> bool:
        """Tell whether it matches all of a text."""
        if self._last is None:
            return bool(self._first.fullmatch(text))
        found = self._first.match(text)
        for part in self._middle:
            found = found and part.search(text, found.end())
        begin = len(text) - self._length_of_last
        return bool(found and found.end() <= begin and self._last.match(text, begin))


def _without_stars(pattern: str) -> re.Pattern[str]:
    return re.compile("".join("." if c == "?" else re.escape(c) for c in pattern), re.DOTALL)
