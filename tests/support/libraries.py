"""Programs that are linked with libreachscan."""

from __future__ import annotations

from victims import REPOSITORY

NATIVE = REPOSITORY / "reachscan" / "_native"
INCLUDE = f"-I{REPOSITORY / 'native' / 'library' / 'include'}"

LINKING = {
    "shared": (INCLUDE, f"-L{NATIVE}", "-lreachscan", f"-Wl,-rpath,{NATIVE}"),
    "static": (INCLUDE, str(NATIVE / "libreachscan.a")),
}
"""Options of the compiler for each form of the library."""

ENVIRONMENT = {"REACHSCAN_HELPER": str(NATIVE / "reachscan-helper")}
"""For static programs: the helper is not beside them."""
