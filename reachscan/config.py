"""Prints the compiler and linker options for libreachscan (`python -m reachscan.config`)."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

PREFIX = Path(__file__).parent / "_native"
LIBRARY = PREFIX / "lib" / "libreachscan.so"
ANY_CALL = "__lsan_do_leak_check"
"""A function in the part of the library that reads the environment."""


def cflags() -> list[str]:
    """Return the compiler options that find the headers."""
    return [f"-I{PREFIX / 'include'}"]


def libs(*, static: bool = False) -> list[str]:
    """Return the options that link a program and let it find the library at run time.

    They link the library even if the program calls none of its functions: it then does what the
    environment says.
    """
    folder = LIBRARY.parent
    if static:
        return [f"-Wl,-u,{ANY_CALL}", str(folder / "libreachscan.a")]
    always = "-Wl,--push-state,--no-as-needed,-lreachscan,--pop-state"
    return [f"-L{folder}", always, f"-Wl,-rpath,{folder}"]


def main() -> None:
    """Print the requested options on one line."""
    parser = argparse.ArgumentParser(prog="python -m reachscan.config", description=__doc__)
    parser.add_argument("--cflags", action="store_true", help="options of the compiler")
    parser.add_argument("--libs", action="store_true", help="options of the linker")
    parser.add_argument("--static", action="store_true", help="those of the static library")
    parser.add_argument("--pkgconfigdir", action="store_true", help="folder for PKG_CONFIG_PATH")
    parser.add_argument("--cmakedir", action="store_true", help="folder for Reachscan_DIR")
    asked = parser.parse_args()
    words = [
        *(cflags() if asked.cflags else []),
        *(libs(static=asked.static) if asked.libs else []),
    ]
    words += [str(LIBRARY.parent / "pkgconfig")] * asked.pkgconfigdir
    words += [str(LIBRARY.parent / "cmake" / "Reachscan")] * asked.cmakedir
    if not words:
        parser.error("nothing is asked for")
    print(shlex.join(words))


if __name__ == "__main__":
    main()
