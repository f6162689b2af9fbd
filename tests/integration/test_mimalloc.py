"""Programs that have their blocks from mimalloc, preloaded."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from conftest import StartVictim
from provisions import provide_all
from same_heap import assert_same_preloaded_heap, whole_blocks
from scans import list_heap, scan
from test_busy_allocator import scan_repeatedly
from test_enumeration import HEAPS
from test_jemalloc import HEAPS_THERE
from test_leak_graph import assert_same_leaks
from victims import Victim, read_truth

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
