"""Threads that never stop allocating, in each allocator, are scanned exactly by each method.

`REACHSCAN_BUSY_SCANS` says how often, 50 for the long form.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import test_iterated
import test_musl
import test_scudo
from conftest import StartVictim
from provisions import provide_all
from test_busy_allocator import scan_repeatedly
from unharmed import TRACK
from victims import command_on, glibc_of

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "1"))
THREADS, LEAKS = 4, 500


class Program(NamedTuple):
    """How to start the fixture with an allocator, and how many leaks may stay unseen."""

    environment: dict[str, str]
    command: list[str] | None = None
    most_missed: int = 0


def preloaded(package: str, library: str) -> Program:
    provide_all(package)
    return Program({"LD_PRELOAD": f"/usr/lib/x86_64-linux-gnu/{library}"})


def listed(environment: dict[str, str]) -> Program:
    """Its lists of free blocks, wherever they are, may still name a block."""
    return Program(environment, most_missed=LEAKS // 100)


ALLOCATORS: dict[str, Callable[[], Program]] = {
    "glibc": lambda: Program({}),
    "jemalloc": lambda: preloaded("libjemalloc2", "libjemalloc.so.2"),
    "mimalloc-2": lambda: preloaded("libmimalloc2.0", "libmimalloc.so.2"),
    "mimalloc-3": lambda: Program(
        {"LD_PRELOAD": glibc_of("trixie").mimalloc}, command_on("trixie", "busy_threads")
    ),
    "tcmalloc": lambda: preloaded("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    "musl": lambda: Program({}, test_musl.command("busy_threads", "dynamic")),
    "musl-static": lambda: Program({}, test_musl.command("busy_threads", "static")),
    "scudo": lambda: Program(test_scudo.preloaded(19)),
    "listed": lambda: listed(test_iterated.listed_pools()),
    "listed-scudo": lambda: listed(test_iterated.scudo("22")),
}


@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_busy(victim: StartVictim, truth: Path, allocator: str, method: str) -> None:
    if allocator.startswith("listed") and method != "clone":
        pytest.skip("in a copy no code of the program can run")
    program = ALLOCATORS[allocator]()
    target = victim(
        "busy_threads",
        truth,
        THREADS,
        LEAKS,
        command=program.command,
        environment=program.environment,
    )
    options = ("--method", method)
    scan_repeatedly(target.pid, truth, SCANS, *options, most_missed=program.most_missed)
