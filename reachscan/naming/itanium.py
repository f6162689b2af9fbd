"""Demangles C++ names on Python 3.9 and 3.10, for which there is no better library."""

from __future__ import annotations

from collections.abc import Sequence

import itanium_demangler

# The library raises arbitrary exceptions; names are untrusted and optional.
_FAILURES = (NotImplementedError, ValueError, TypeError, AttributeError, RecursionError)


def demangle(mangled: str, *, language: Sequence[str], longest: int) -> str:
    """Return the readable form of a C++ name, and any other name unchanged.

    Args:
        mangled: the name of a symbol.
        language: mangling schemes to consider; only "itanium" is supported.
        longest: names whose readable form is longer stay as they are.
    """
    if "itanium" not in language:
        return mangled
    try:
        tree = itanium_demangler.parse(mangled)
        if tree is None or _unfolded_length(tree, {}) > longest or _has_tail(mangled, tree):
            return mangled
        return str(tree).replace("_GLOBAL__N_1", "(anonymous namespace)")
    except _FAILURES:
        return mangled


def _has_tail(mangled: str, tree: object) -> bool:
    """Return whether the library ignored the end of a name: its last character changes nothing."""
    try:
        return bool(itanium_demangler.parse(mangled[:-1]) == tree)
    except _FAILURES:
        return False


def _unfolded_length(node: object, known: dict[int, int]) -> int:
    """Return the approximate length of a printed tree; substitutions can make it enormous."""
    if isinstance(node, str):
        return len(node)
    if not isinstance(node, (tuple, frozenset)):
        return 1
    if id(node) not in known:
        known[id(node)] = sum(_unfolded_length(child, known) for child in node)
    return known[id(node)]
