"""What compilers need to use libreachscan: `python -m reachscan.config --cflags --libs`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

PREFIX = Path(__file__).parent / "_native"
LIBRARY = PREFIX / "lib" / "libreachscan.so"
ANY_CALL = "__lsan_do_leak_check"
"""A function of the part of the library that obeys the environment."""


def cflags() -> list[str]:
    """Return the options with which the headers are found."""
    return [f"-I{PREFIX / 'include'}"]


def libs(*, static: bool = False) -> list[str]:
    """Return the options with which a program is linked, and finds the library when it runs.

    The library goes along if the program calls nothing of it, too: it obeys the environment then.
    """
    folder = LIBRARY.parent
    if static:
        return [f"-Wl,-u,{ANY_CALL}", str(folder / "libreachscan.a")]
    always = "-Wl,--push-state,--no-as-needed,-lreachscan,--pop-state"
    return [f"-L{folder}", always, f"-Wl,-rpath,{folder}"]


def main() -> None:
    """Write what the arguments ask for to stdout, in one line."""
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
