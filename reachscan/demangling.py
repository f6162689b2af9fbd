"""Names as they stand in the source, from those that compilers make of them (C++ and Rust).

Names come out of foreign files and foreign memory: what cannot be read, or would take too long,
stays as it is. How deep and how far a name may unfold is bounded.
"""

from __future__ import annotations

import sys

LONGEST = 2000
"""Mangled names beyond this many characters stay as they are: they cost too much to unfold."""

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
        from demangle import demangle
    else:  # the library above needs 3.11; this one knows neither Rust nor names local to a function
        from reachscan.itanium import demangle
    return demangle(mangled, language=_SCHEMES)
