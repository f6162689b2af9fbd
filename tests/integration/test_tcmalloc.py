"""Programs that have their blocks from the tcmalloc of gperftools, preloaded or linked in."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from conftest import StartVictim
from glibc_suites import SUITES
from provisions import provide_all
from same_heap import assert_same_preloaded_heap
from scans import FAILED, list_heap, run_cli, scan
from test_busy_allocator import scan_repeatedly
from test_enumeration import HEAPS
from test_jemalloc import HEAPS_THERE
from test_leak_graph import assert_same_leaks
from unharmed import METHODS
from victims import build, command_on, glibc_of, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "4"))
LIBRARY = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
LINKED_IN = ("-s", "-l:libtcmalloc_minimal.a", "-lstdc++", "-lm")
"""The library in the program itself, which is stripped."""
LINKAGES = {"dynamic": LINKED_IN, "static": ("-static", *LINKED_IN)}


@pytest.fixture
def preloaded() -> dict[str, str]:
    provide_all("libtcmalloc-minimal4")
    return {"LD_PRELOAD": LIBRARY}


@pytest.mark.parametrize("heap", HEAPS_THERE)
def test_enumeration(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], heap: str
) -> None:
    seed, threads, *rest = HEAPS[heap]
    target = victim("ground_truth", truth, seed, threads, *rest, environment=preloaded)
    assert_same_preloaded_heap(list_heap(target.ready["pid"]), read_truth(truth), int(threads))


@pytest.mark.parametrize("heap", HEAPS_THERE)
@pytest.mark.parametrize("suite", SUITES)
def test_enumeration_of_other_releases(
    victim: StartVictim, truth: Path, suite: str, heap: str
) -> None:
    """2.8.1, 2.16, 2.18.1."""
    seed, threads, *rest = HEAPS[heap]
    command = command_on(suite, "ground_truth")
    preload = {"LD_PRELOAD": glibc_of(suite).tcmalloc}
    target = victim(
        "ground_truth", truth, seed, threads, *rest, command=command, environment=preload
    )
    assert_same_preloaded_heap(list_heap(target.ready["pid"]), read_truth(truth), int(threads))


@pytest.mark.parametrize("linkage", LINKAGES)
def test_enumeration_in_stripped_programs(victim: StartVictim, truth: Path, linkage: str) -> None:
    provide_all("libgoogle-perftools-dev")
    command = [str(build("ground_truth", LINKAGES[linkage]))]
    target = victim("ground_truth", truth, 4, 5, 4000, "drain=40", command=command)
    assert_same_preloaded_heap(list_heap(target.pid), read_truth(truth), 5)


@pytest.mark.parametrize("linkage", LINKAGES)
def test_busy_stripped_programs(victim: StartVictim, truth: Path, linkage: str) -> None:
    provide_all("libgoogle-perftools-dev")
    command = [str(build("busy_threads", LINKAGES[linkage]))]
    target = victim("busy_threads", truth, 4, 500, command=command)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))


@pytest.mark.parametrize(
    "settings",
    [
        {"TCMALLOC_SKIP_SBRK": "1"},
        {"TCMALLOC_SKIP_MMAP": "1"},
        {"TCMALLOC_RELEASE_RATE": "10"},
        {"TCMALLOC_AGGRESSIVE_DECOMMIT": "1"},
        {"TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES": "0"},
        {"TCMALLOC_TRANSFER_NUM_OBJ": "2"},
        {"TCMALLOC_OVERRIDE_PAGESIZE": "65536"},
    ],
    ids=lambda settings: "=".join(*settings.items()),
)
def test_settings(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], settings: dict[str, str]
) -> None:
    environment = {**preloaded, **settings}
    target = victim("ground_truth", truth, 2, 4, 4000, "drain=60", environment=environment)
    assert_same_preloaded_heap(list_heap(target.pid), read_truth(truth), 4)


def test_sampled_blocks(victim: StartVictim, truth: Path) -> None:
    """The whole library gives some blocks spans of their own, with the stack of who allocated."""
    provide_all("libgoogle-perftools4")
    whole = LIBRARY.replace("_minimal", "")
    environment = {"LD_PRELOAD": whole, "TCMALLOC_SAMPLE_PARAMETER": "4096"}
    target = victim("ground_truth", truth, 2, 4, 4000, "drain=60", environment=environment)
    assert_same_preloaded_heap(list_heap(target.pid), read_truth(truth), 4)


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], method: str
) -> None:
    target = victim("ground_truth", truth, 5, 3, 3000, "drain=20", environment=preloaded)
    assert_same_preloaded_heap(list_heap(target.pid, method), read_truth(truth), 3)


@pytest.mark.parametrize("threads", [2, 8])
def test_busy(victim: StartVictim, truth: Path, preloaded: dict[str, str], threads: int) -> None:
    target = victim("busy_threads", truth, threads, 500, environment=preloaded)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize("suite", SUITES)
def test_busy_on_other_releases(victim: StartVictim, truth: Path, suite: str) -> None:
    preload = {"LD_PRELOAD": glibc_of(suite).tcmalloc}
    command = command_on(suite, "busy_threads")
    target = victim("busy_threads", truth, 4, 500, command=command, environment=preload)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))


def test_busy_and_giving_memory_back(
    victim: StartVictim, truth: Path, preloaded: dict[str, str]
) -> None:
    environment = {**preloaded, "TCMALLOC_AGGRESSIVE_DECOMMIT": "1"}
    target = victim("busy_threads", truth, 4, 500, environment=environment)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize(("blocks", "percent"), [(2000, 50), (100_000, 10), (20_000, 0)])
def test_leak_graph(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], blocks: int, percent: int
) -> None:
    """Among what is not leaked is the object that the library makes for itself and loses."""
    target = victim("leak_graph", truth, blocks, percent, environment=preloaded)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    names = [f"glibc {platform.libc_ver()[1]}", "tcmalloc of gperftools"]
    assert report["target"]["allocators"] == names


def test_the_debug_form_is_refused(
    victim: StartVictim, truth: Path, preloaded: dict[str, str]
) -> None:
    """Its tables lead to all blocks, and each block is inside one of the usual form."""
    environment = {"LD_PRELOAD": preloaded["LD_PRELOAD"].replace("minimal", "minimal_debug")}
    target = victim("leak_graph", truth, 2000, 50, environment=environment)
    done = run_cli([target.pid])
    assert done.status == FAILED
    assert "the headers of its debug form, which is not understood" in done.talk
