"""Programs on musl, dynamic and static ones, with its allocator mallocng."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import StartVictim
from provisions import provide_all
from same_heap import assert_same_heap
from scans import FAILED, list_heap, run_cli, scan
from test_busy_allocator import scan_repeatedly
from test_enumeration import HEAPS
from test_leak_graph import assert_same_leaks
from test_roots import wrong_verdicts
from unharmed import METHODS
from victims import build, need, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "4"))
LINKED = {"dynamic": [], "static": ["-static"], "static-pie": ["-static-pie"]}
HEAPS_THERE = [name for name in HEAPS if not name.startswith("blocked")]
"""What keeps the program break from growing is nothing to musl."""
STOPPING = [method for method in METHODS if method != "live"]

KERNEL_HEADERS = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"]
"""musl brings none; behind its own, those of the machine do."""


def command(name: str, linked: str = "dynamic") -> list[str]:
    """Return the command that runs a fixture program on musl."""
    provide_all("musl musl-dev")
    compiler = need("musl-gcc", "musl-tools")
    return [str(build(name, [*KERNEL_HEADERS, *LINKED[linked]], compiler))]


@pytest.mark.parametrize("heap", HEAPS_THERE)
@pytest.mark.parametrize("linked", LINKED)
def test_enumeration(victim: StartVictim, truth: Path, linked: str, heap: str) -> None:
    seed, threads, *rest = HEAPS[heap]
    words = command("ground_truth", linked)
    target = victim("ground_truth", truth, seed, threads, *rest, command=words)
    assert_same_heap(list_heap(target.ready["pid"]), read_truth(truth), own_blocks=0)


def test_enumeration_of_a_stripped_program(victim: StartVictim, truth: Path) -> None:
    provide_all("musl musl-dev")
    program = build("ground_truth", ["-static", "-s"], need("musl-gcc", "musl-tools"))
    target = victim("ground_truth", truth, 8, 3, 4000, "drain=50", command=[str(program)])
    assert_same_heap(list_heap(target.pid), read_truth(truth), own_blocks=0)


@pytest.mark.parametrize("method", STOPPING)
def test_methods_agree(victim: StartVictim, truth: Path, method: str) -> None:
    words = command("ground_truth")
    target = victim("ground_truth", truth, 5, 3, 3000, "drain=20", command=words)
    assert_same_heap(list_heap(target.pid, method), read_truth(truth), own_blocks=0)


@pytest.mark.parametrize(("blocks", "percent"), [(2000, 50), (100_000, 10), (20_000, 0)])
@pytest.mark.parametrize("linked", LINKED)
def test_leak_graph(
    victim: StartVictim, truth: Path, linked: str, blocks: int, percent: int
) -> None:
    words = command("leak_graph", linked)
    target = victim("leak_graph", truth, blocks, percent, command=words)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    assert report["target"]["allocators"] == ["musl"]


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("linked", LINKED)
def test_busy(victim: StartVictim, truth: Path, linked: str, threads: int) -> None:
    words = command("busy_threads", linked)
    target = victim("busy_threads", truth, threads, 500, command=words)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize("method", STOPPING)
@pytest.mark.parametrize("linked", LINKED)
def test_places_of_threads(victim: StartVictim, linked: str, method: str) -> None:
    """A thread's own memory, and what is left of it when it has ended."""
    target = victim("thread_roots", command=command("thread_roots", linked))
    assert wrong_verdicts(target, scan(target.pid, "--all", "--method", method)) == {}


def test_unstopped_threads_are_refused(victim: StartVictim, truth: Path) -> None:
    """Without a stop nobody tells where musl's threads have their descriptors."""
    target = victim("ground_truth", truth, 5, 3, 3000, command=command("ground_truth"))
    done = run_cli(["scan", target.pid, "--method", "live"])
    assert done.status == FAILED, done.out
    assert "has no descriptor of the C library that can be found" in " ".join(done.talk.split())
