"""Readable names of C++ types and symbols."""

from __future__ import annotations

import itanium_demangler

LONGEST = 2000
"""Mangled names beyond this many characters stay as they are: they cost too much to unfold."""


def type_name(mangled: str) -> str:
    """Return the readable name of a C++ type, or the mangled one if it cannot be read."""
    # A leading asterisk says that the name is not unique to the type; it is no part of it.
    bare = mangled.removeprefix("*")
    return _demangle("_Z" + bare) or bare


def symbol_name(mangled: str) -> str:
    """Return the readable name of a symbol, or the mangled one if it cannot be read."""
    return (_demangle(mangled) if mangled.startswith("_Z") else None) or mangled


def _demangle(mangled: str) -> str | None:
    if len(mangled) > LONGEST:
        return None
    try:
        tree = itanium_demangler.parse(mangled)
        if tree is None or _unfolded_length(tree, {}) > 2 * LONGEST:
            return None
        return str(tree).replace("_GLOBAL__N_1", "(anonymous namespace)")
    except (NotImplementedError, ValueError, TypeError, AttributeError, RecursionError):
        # The library raises whatever its parser trips over; names are untrusted and optional.
        return None


def _unfolded_length(node: object, known: dict[int, int]) -> int:
    """Return about how long a tree prints; substitutions let short names unfold enormously."""
    if isinstance(node, str):
        return len(node)
    if not isinstance(node, tuple | frozenset):
        return 1
    if id(node) not in known:
        known[id(node)] = sum(_unfolded_length(child, known) for child in node)
    return known[id(node)]
