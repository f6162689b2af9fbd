"""Programs that have their blocks from Scudo, LLVM's hardened allocator: preloaded or linked in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import StartVictim
from provisions import provide_all
from same_heap import assert_same_heap
from scans import list_heap, scan
from test_busy_allocator import scan_repeatedly
from test_enumeration import HEAPS
from test_leak_graph import assert_same_leaks
from victims import build, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "1"))
RELEASES = {14: "14.0.6", 16: "16", 19: "19"}
DIRECTORY = "/usr/lib/llvm-{}/lib/clang/{}/lib/linux/libclang_rt.scudo_standalone-x86_64"
BLOCKS_OF_LOADER = 12
"""What libc has for itself from the allocator, besides a vector for each thread: what the loader
notes about the library that takes stacks, which Scudo loads when it needs it."""
LARGEST_OF_LOADER = 90_000

LINKED_IN = (
    *("-s", "-Wl,--whole-archive", DIRECTORY.format(14, RELEASES[14]) + ".a"),
    *("-Wl,--no-whole-archive", "-lpthread", "-ldl"),
)
"""The library in the program itself, which is stripped."""


def preloaded(release: int, **settings: str) -> dict[str, str]:
    provide_all(f"libclang-rt-{release}-dev")
    return {"LD_PRELOAD": DIRECTORY.format(release, RELEASES[release]) + ".so", **settings}


def assert_same(pid: int, truth: Path, threads: int) -> None:
    own = 2 * (threads + 1) + BLOCKS_OF_LOADER
    assert_same_heap(list_heap(pid), read_truth(truth), own, LARGEST_OF_LOADER)


@pytest.mark.parametrize(
    ("release", "heap"),
    [(14, "mmapped"), (14, "forked"), (16, "mmapped"), (19, "drained"), (19, "many-threads")],
)
def test_enumeration(victim: StartVictim, truth: Path, release: int, heap: str) -> None:
    seed, threads, *rest = HEAPS[heap]
    environment = preloaded(release)
    target = victim("ground_truth", truth, seed, threads, *rest, environment=environment)
    assert_same(target.ready["pid"], truth, int(threads))


SETTINGS = {
    "quarantine": "quarantine_size_kb=4096:thread_local_quarantine_size_kb=64"
    ":quarantine_max_chunk_size=2048",
    "guarded": "GWP_ASAN_SampleRate=2:GWP_ASAN_MaxSimultaneousAllocations=500",
    "released": "GWP_ASAN_Enabled=false:release_to_os_interval_ms=0",
}


@pytest.mark.parametrize(
    ("release", "settings"),
    [(14, "quarantine"), (14, "guarded"), (19, "quarantine"), (19, "guarded"), (19, "released")],
)
def test_settings(victim: StartVictim, truth: Path, release: int, settings: str) -> None:
    environment = preloaded(release, SCUDO_OPTIONS=SETTINGS[settings])
    target = victim("ground_truth", truth, 2, 4, 2000, "drain=60", environment=environment)
    assert_same(target.pid, truth, 4)


@pytest.mark.parametrize(("release", "threads"), [(14, 8), (19, 2)])
def test_busy(victim: StartVictim, truth: Path, release: int, threads: int) -> None:
    target = victim("busy_threads", truth, threads, 500, environment=preloaded(release))
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize(("release", "method"), [(14, "copy"), (16, "clone"), (19, "copy")])
def test_leak_graph(victim: StartVictim, truth: Path, release: int, method: str) -> None:
    target = victim("leak_graph", truth, 5000, 10, environment=preloaded(release))
    report = scan(target.pid, "--all", "--limit", 1_000_000, "--method", method)
    assert_same_leaks(report, read_truth(truth))
    assert report["target"]["allocators"][-1] == "Scudo"


@pytest.mark.parametrize("linkage", ["-pie", "-static"])
def test_stripped_programs(victim: StartVictim, truth: Path, linkage: str) -> None:
    provide_all("libclang-rt-14-dev")
    command = [str(build("ground_truth", (linkage, *LINKED_IN)))]
    target = victim("ground_truth", truth, 4, 5, 2000, "drain=40", command=command)
    assert_same(target.pid, truth, 5)


@pytest.mark.parametrize("linkage", ["-pie", "-static"])
def test_busy_stripped_programs(victim: StartVictim, truth: Path, linkage: str) -> None:
    provide_all("libclang-rt-14-dev")
    command = [str(build("busy_threads", (linkage, *LINKED_IN)))]
    target = victim("busy_threads", truth, 4, 500, command=command)
    scan_repeatedly(target.pid, truth, SCANS)
