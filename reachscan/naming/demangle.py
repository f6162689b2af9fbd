"""Turns the mangled names that compilers make (C++ and Rust) back into those of the source.

Names come out of foreign files and foreign memory: what cannot be read, or would take too long,
stays as it is. How deep and how far a name may unfold is bounded.
"""

from __future__ import annotations

import sys

LONGEST = 2000
"""Mangled names beyond this many characters stay as they are: they cost too much to unfold."""

LONGEST_READABLE = 4000
"""Names that would unfold to more characters stay as they are: substitutions double what they name,
so that a hundred mangled characters can mean any number of readable ones."""

_SCHEMES = ("itanium", "rust")


def type_name(mangled: str) -> str:
    """Return the readable name of a C++ type, or the mangled one if it cannot be read."""
    # A leading asterisk says that the name is not unique to the type; it is no part of it.
    bare = mangled.removeprefix("*")
    what, _, name = symbol_name(f"_ZTS{bare}").partition(" for ")
    return name if what == "typeinfo name" else bare


def symbol_name(mangled: str) -> str:
    """Return the readable name of a symbol, or the mangled one if it cannot be read."""
    if len(mangled) > LONGEST or not mangled.startswith(("_Z", "_R")):
        return mangled
    # These libraries take long to load, and C programs need none.
    if sys.version_info >= (3, 11):
        from demangle import Limits, demangle

        limits = Limits(max_input=LONGEST, max_output=LONGEST_READABLE)
        return demangle(mangled, language=_SCHEMES, limits=limits)
    # The library above needs 3.11; this one knows neither Rust nor names local to a function.
    from reachscan.naming import itanium

    return itanium.demangle(mangled, language=_SCHEMES, longest=LONGEST_READABLE)
