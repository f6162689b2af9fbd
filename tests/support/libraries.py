"""Programs that are linked with libreachscan."""

from __future__ import annotations

from victims import REPOSITORY

from reachscan import config

LINKING = {
    "shared": [*config.cflags(), *config.libs()],
    "static": [*config.cflags(), *config.libs(static=True)],
}
"""Options of the compiler for each form of the library."""

ENVIRONMENT = {"REACHSCAN_HELPER": str(REPOSITORY / "reachscan" / "_native" / "reachscan-helper")}
"""For static programs: the helper is not beside them."""
