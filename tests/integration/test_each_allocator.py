"""In each allocator, known leaks are found exactly, even if threads never stop allocating.

For the long form, `REACHSCAN_BUSY_SCANS` is 50 and `REACHSCAN_GRAPH_BLOCKS` is 1000000.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import test_iterated
import test_musl
import test_scudo
from conftest import StartVictim
from provisions import provide_all
from scans import leaked, scan
from test_busy_allocator import scan_repeatedly
from test_leak_graph import assert_same_leaks, assert_sums
from unharmed import TRACK
from victims import Truth, Victim, command_on, glibc_of, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "1"))
THREADS, LEAKS = 4, 500
GRAPH_BLOCKS = int(os.environ.get("REACHSCAN_GRAPH_BLOCKS", "5000"))
GRAPH_PERCENT = 10


class Program(NamedTuple):
    """How to start a fixture with an allocator, and how many leaks may stay unseen."""

    name: str
    environment: dict[str, str]
    command: list[str] | None = None
    most_missed: int = 0

    def start(self, victim: StartVictim, *arguments: object) -> Victim:
        return victim(self.name, *arguments, command=self.command, environment=self.environment)


def preloaded(name: str, package: str, library: str) -> Program:
    provide_all(package)
    return Program(name, {"LD_PRELOAD": f"/usr/lib/x86_64-linux-gnu/{library}"})


def mimalloc_3(name: str) -> Program:
    environment = {"LD_PRELOAD": glibc_of("trixie").mimalloc}
    return Program(name, environment, command_on("trixie", name))


def listed(name: str, environment: dict[str, str]) -> Program:
    """Its own words are not known: lists of free blocks, or starts of pools, may name a block."""
    return Program(name, environment, most_missed=LEAKS // 100)


ALLOCATORS: dict[str, Callable[[str], Program]] = {
    "glibc": lambda name: Program(name, {}),
    "jemalloc": lambda name: preloaded(name, "libjemalloc2", "libjemalloc.so.2"),
    "mimalloc-2": lambda name: preloaded(name, "libmimalloc2.0", "libmimalloc.so.2"),
    "mimalloc-3": mimalloc_3,
    "tcmalloc": lambda name: preloaded(name, "libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
    "musl": lambda name: Program(name, {}, test_musl.command(name, "dynamic")),
    "musl-static": lambda name: Program(name, {}, test_musl.command(name, "static")),
    "scudo": lambda name: Program(name, test_scudo.preloaded(19)),
    "listed": lambda name: listed(name, test_iterated.listed_pools()),
    "listed-scudo": lambda name: Program(name, test_iterated.scudo("22")),
}
METHODS = ("clone", "copy", TRACK)


def program_on(name: str, allocator: str, method: str) -> Program:
    """Return a fixture on an allocator, or skip the test if the method does not serve that."""
    if allocator.startswith("listed") and method != "clone":
        pytest.skip("in a copy no code of the program can run")
    return ALLOCATORS[allocator](name)


@pytest.mark.parametrize("operations", [0, 500])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_busy(
    victim: StartVictim, truth: Path, allocator: str, method: str, operations: int
) -> None:
    """With a number of operations, threads come and go; what they cached is freed in steps."""
    if allocator == "mimalloc-3" and operations:
        pytest.skip("Debian 13's mimalloc 3.0.1 corrupts this program's blocks, scanned or not")
    program = program_on("busy_threads", allocator, method)
    target = program.start(victim, truth, THREADS, LEAKS, operations)
    options = ("--method", method)
    scan_repeatedly(target.pid, truth, SCANS, *options, most_missed=program.most_missed)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_leak_graph(victim: StartVictim, truth: Path, allocator: str, method: str) -> None:
    program = program_on("leak_graph", allocator, method)
    target = program.start(victim, truth, GRAPH_BLOCKS, GRAPH_PERCENT)
    report = scan(target.pid, "--method", method, "--all", "--limit", GRAPH_BLOCKS)
    if program.most_missed:
        assert_most_found(report, read_truth(truth), program.most_missed)
    else:
        assert_same_leaks(report, read_truth(truth))
        assert_sums(report, read_truth(truth))


def assert_most_found(report: dict[str, Any], truth: Truth, most_missed: int) -> None:
    found = leaked(report)[:, 0]
    assert len(np.setdiff1d(found, truth[:, 0])) == 0, "live blocks are reported"
    assert len(np.setdiff1d(truth[:, 0], found)) <= most_missed
