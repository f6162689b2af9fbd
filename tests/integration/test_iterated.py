"""Allocators that only their own malloc_iterate() knows: it is called in the clone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import StartVictim
from provisions import provide_all
from same_heap import assert_same_heap
from scans import FAILED, list_heap, recording_of, run_cli, scan
from test_busy_allocator import LEAKS, scan_repeatedly
from test_enumeration import HEAPS
from test_leak_graph import assert_same_leaks
from test_scudo import BLOCKS_OF_LOADER, DIRECTORY, LARGEST_OF_LOADER, SETTINGS
from victims import build, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "1"))
RELEASES = ["22"]
"""Of LLVM, whose Scudo has a structure that is not understood."""


def listed_pools(wrong: str = "") -> dict[str, str]:
    library = build("listed_pools", ["-shared", "-fPIC", "-fno-builtin"])
    return {"LD_PRELOAD": str(library), "LISTED_POOLS": wrong}


def scudo(release: str) -> dict[str, str]:
    provide_all(f"libclang-rt-{release}-dev")
    return {"LD_PRELOAD": DIRECTORY.format(release, release) + ".so"}


@pytest.fixture(params=["pools", *RELEASES])
def preloaded(request: pytest.FixtureRequest) -> dict[str, str]:
    return listed_pools() if request.param == "pools" else scudo(request.param)


@pytest.mark.parametrize("heap", ["mmapped", "drained", "many-threads"])
def test_enumeration(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], heap: str
) -> None:
    seed, threads, *rest = HEAPS[heap]
    target = victim("ground_truth", truth, seed, threads, *rest, environment=preloaded)
    own = 2 * (int(threads) + 1) + BLOCKS_OF_LOADER
    assert_same_heap(list_heap(target.pid), read_truth(truth), own, LARGEST_OF_LOADER)


def test_leak_graph(victim: StartVictim, truth: Path, preloaded: dict[str, str]) -> None:
    target = victim("leak_graph", truth, 5000, 10, environment=preloaded)
    report = scan(target.pid, "--all", "--limit", 1_000_000, "--method", "clone")
    assert_same_leaks(report, read_truth(truth))


def test_records_of_guarded_blocks(victim: StartVictim, truth: Path) -> None:
    """GWP-ASan's, which name these blocks and are not in any of them."""
    environment = {**scudo("22"), "SCUDO_OPTIONS": SETTINGS["guarded"]}
    target = victim("leak_graph", truth, 5000, 10, environment=environment)
    report = scan(target.pid, "--all", "--limit", 1_000_000, "--method", "clone")
    assert_same_leaks(report, read_truth(truth))


@pytest.mark.parametrize("threads", [2, 8])
def test_busy(victim: StartVictim, truth: Path, preloaded: dict[str, str], threads: int) -> None:
    target = victim("busy_threads", truth, threads, LEAKS, environment=preloaded)
    # The allocator's lists of free blocks, wherever they are, may still name a block.
    scan_repeatedly(target.pid, truth, SCANS, most_missed=LEAKS // 100)


def test_a_structure_that_is_not_understood_is_not_waited_for(
    victim: StartVictim, truth: Path
) -> None:
    """It resembles one that is, but no other moment makes it so: its allocator is asked at once."""
    target = victim("busy_threads", truth, 4, LEAKS, environment=scudo("22"))
    assert min(recording_of(target.pid).snapshot.attempts for _ in range(5)) == 1


SENTENCES = {
    "held": "its malloc_disable() waits for a lock",
    "spins": "its malloc_disable() does not return in time",
    "hangs": "its malloc_iterate() does not return in time",
    "crashes": "its malloc_iterate() crashes",
    "shared": "its malloc_iterate() crashes",
    "fails": "its malloc_iterate() has failed",
    "kernel": "its malloc_iterate() makes a system call",
    "overlaps": "malloc_iterate() has listed blocks that overlap",
    "outside": "malloc_iterate() has listed a block outside of anonymous memory",
    "odd": "malloc_iterate() has listed a block at an odd address",
}


@pytest.mark.parametrize("wrong", SENTENCES)
def test_what_is_wrong_is_said(victim: StartVictim, truth: Path, wrong: str) -> None:
    target = victim("leak_graph", truth, 100, 10, environment=listed_pools(wrong))
    done = run_cli(["scan", target.pid, "--method", "clone"])
    assert done.status == FAILED, done.out
    assert SENTENCES[wrong] in " ".join(done.talk.split())


def test_backtraces(victim: StartVictim, truth: Path) -> None:
    """The allocator keeps the caller of each allocation."""
    target = victim("leak_graph", truth, 5000, 10, environment=listed_pools())
    report = scan(target.pid, "--all", "--limit", 1_000_000, "--method", "clone")
    assert report["warnings"] == []
    (allocating,) = report["stacks"]
    assert [frame["function"] for frame in allocating] == ["new_node"]
    for leak in report["allocations"]:
        assert (leak["stack"], leak["tid"], leak["age_us"]) == (0, None, None)
    for group in report["groups"]:
        assert (group["stack"], group["threads"], group["age_us"]) == (0, [], None)
    one = report["allocations"][0]["address"]
    done = run_cli(["explain", target.pid, one, "--json", "--method", "clone"])
    assert json.loads(done.out)["block"]["stack"] == 0, done.talk


def test_backtraces_that_fail(victim: StartVictim, truth: Path) -> None:
    target = victim("leak_graph", truth, 5000, 10, environment=listed_pools("forgets"))
    report = scan(target.pid, "--all", "--limit", 1_000_000, "--method", "clone")
    assert_same_leaks(report, read_truth(truth))
    assert {leak["stack"] for leak in report["allocations"]} == {None}
    (warning,) = report["warnings"]
    assert warning["code"] == "stacks-missing"
    assert warning["message"].endswith("its malloc_backtrace() crashes")


def test_another_heap_is_still_searched(victim: StartVictim, truth: Path) -> None:
    """glibc's, of which the allocator lists a block as its own."""
    target = victim("leak_graph", truth, 100, 10, environment=listed_pools("foreign"))
    done = run_cli(["scan", target.pid, "--json", "--method", "clone"])
    assert done.status == 0, done.talk
    report = json.loads(done.out)
    (warning,) = report["warnings"]
    assert warning["code"] == "incomplete-heaps"
    assert "malloc_iterate() has listed blocks in another allocator's memory" in warning["message"]
    assert [name.split()[0] for name in report["target"]["allocators"]] == ["glibc"]


def test_nothing_is_called_in_a_copy(victim: StartVictim, truth: Path) -> None:
    target = victim("leak_graph", truth, 100, 10, environment=listed_pools())
    done = run_cli(["scan", target.pid, "--method", "copy"])
    assert done.status == FAILED, done.out
    assert "its malloc_iterate() can be called only in a clone" in " ".join(done.talk.split())
