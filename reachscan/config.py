"""What compilers need to use libreachscan: `python -m reachscan.config --cflags --libs`."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

PREFIX = Path(__file__).parent / "_native"
LIBRARY = PREFIX / "lib" / "libreachscan.so"


def cflags() -> list[str]:
    """Return the options with which the headers are found."""
    return [f"-I{PREFIX / 'include'}"]


def libs(*, static: bool = False) -> list[str]:
    """Return the options with which a program is linked, and finds the library when it runs."""
    folder = LIBRARY.parent
    if static:
        return [str(folder / "libreachscan.a")]
    return [f"-L{folder}", "-lreachscan", f"-Wl,-rpath,{folder}"]


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
