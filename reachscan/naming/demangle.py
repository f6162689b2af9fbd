"""Demangles C++ and Rust names.

Names come from untrusted files and memory. A name that cannot be demangled, or would take too long,
stays as it is; depth and length of the result are bounded.
"""

from __future__ import annotations

import sys

LONGEST = 2000
"""Longer mangled names stay as they are: they take too long to demangle."""

MAX_DEMANGLED = 4000
"""Names whose readable form is longer stay as they are: substitutions can double it repeatedly, so
a hundred mangled characters can expand without limit."""

_SCHEMES = ("itanium", "rust")


def type_name(mangled: str) -> str:
    """Return the readable name of a C++ type, or the mangled one if demangling fails."""
    # A leading asterisk marks names that are not unique to the type; it is not part of the name.
    bare = mangled.removeprefix("*")
    what, _, name = symbol_name(f"_ZTS{bare}").partition(" for ")
    return name if what == "typeinfo name" else bare


def symbol_name(mangled: str) -> str:
    """Return the readable name of a symbol, or the mangled one if demangling fails."""
    if len(mangled) > LONGEST or not mangled.startswith(("_Z", "_R")):
        return mangled
    # These libraries are slow to load, and C programs need none.
    if sys.version_info >= (3, 11):
        from demangle import Limits, demangle

        limits = Limits(max_input=LONGEST, max_output=MAX_DEMANGLED)
        return demangle(mangled, language=_SCHEMES, limits=limits)
    # The library above needs 3.11; this one lacks Rust, and names local to a function.
    from reachscan.naming import itanium

    return itanium.demangle(mangled, language=_SCHEMES, longest=MAX_DEMANGLED)
