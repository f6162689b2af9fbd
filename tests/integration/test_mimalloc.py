"""Programs that have their blocks from mimalloc 2 or 3, preloaded."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from provisions import provide_all
from same_heap import assert_same_preloaded_heap, whole_blocks
from scans import FAILED, list_heap, run_cli, scan
from test_busy_allocator import scan_repeatedly
from test_enumeration import HEAPS
from test_jemalloc import HEAPS_THERE
from test_leak_graph import assert_same_leaks
from victims import Truth, Victim, command_on, glibc_of, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "4"))
LIBRARY = "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2"


@pytest.fixture
def preloaded() -> dict[str, str]:
    provide_all("libmimalloc2.0")
    return {"LD_PRELOAD": LIBRARY}


def assert_same(target: Victim, truth: Path, threads: int) -> None:
    found = list_heap(target.ready["pid"])
    assert_same_preloaded_heap(found, whole_blocks(found, read_truth(truth)), threads)


@pytest.mark.parametrize("heap", HEAPS_THERE)
def test_enumeration(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], heap: str
) -> None:
    seed, threads, *rest = HEAPS[heap]
    target = victim("ground_truth", truth, seed, threads, *rest, environment=preloaded)
    assert_same(target, truth, int(threads))


def test_busy(victim: StartVictim, truth: Path, preloaded: dict[str, str]) -> None:
    target = victim("busy_threads", truth, 8, 500, environment=preloaded)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))


@pytest.mark.parametrize(("blocks", "percent"), [(2000, 50), (100_000, 10)])
def test_leak_graph(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], blocks: int, percent: int
) -> None:
    target = victim("leak_graph", truth, blocks, percent, environment=preloaded)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    assert report["target"]["allocators"] == [f"glibc {platform.libc_ver()[1]}", "mimalloc 2"]


@pytest.fixture
def release_3() -> dict[str, str]:
    """3.0.1 of Debian 13."""
    return {"LD_PRELOAD": glibc_of("trixie").mimalloc}


def blocks_of_3_0_1(found: Truth, pointers: Truth) -> Truth:
    """Return the truth about blocks, whose aligned parts that release thinks longer than they are.

    Of pages that no thread owns, `malloc_usable_size` forgets which pointers are inside a block.
    """
    whole = whole_blocks(found, pointers)
    sizes = found[np.searchsorted(found[:, 0], whole[:, 0]), 1]
    inside = whole[:, 0] != pointers[:, 0]
    whole[inside, 1] = np.minimum(whole[inside, 1], sizes[inside])
    return whole


def test_enumeration_of_release_3(
    victim: StartVictim, truth: Path, release_3: dict[str, str]
) -> None:
    """With one thread: when others have ended, 3.0.1 damages the program's blocks by itself."""
    seed, threads, *rest = HEAPS["one-thread"]
    command = command_on("trixie", "ground_truth")
    target = victim(
        "ground_truth", truth, seed, threads, *rest, command=command, environment=release_3
    )
    found = list_heap(target.pid)
    expected = blocks_of_3_0_1(found, read_truth(truth))
    assert_same_preloaded_heap(found, expected, int(threads))


def test_busy_release_3(victim: StartVictim, truth: Path, release_3: dict[str, str]) -> None:
    command = command_on("trixie", "busy_threads")
    target = victim("busy_threads", truth, 4, 500, command=command, environment=release_3)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))


def test_leak_graph_of_release_3(
    victim: StartVictim, truth: Path, release_3: dict[str, str]
) -> None:
    command = command_on("trixie", "leak_graph")
    target = victim("leak_graph", truth, 20_000, 10, command=command, environment=release_3)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    assert report["target"]["allocators"][1:] == ["mimalloc 3"]


def test_later_releases_are_refused(victim: StartVictim, truth: Path) -> None:
    """3.6 describes pages in other ways, and its library defines malloc."""
    command = command_on("sid", "leak_graph")
    preload = {"LD_PRELOAD": glibc_of("sid").mimalloc}
    target = victim("leak_graph", truth, 2000, 50, command=command, environment=preload)
    done = run_cli(["scan", target.pid])
    assert done.status == FAILED, done.out
    talk = " ".join(done.talk.split())
    assert "malloc is provided by a module that is not understood" in talk
    assert "libmimalloc.so.3" in talk
