"""Every live block is found with its true size, and nothing else is taken for one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import StartVictim
from glibc_suites import OLDER_SUITES, SUITES
from same_heap import assert_same_heap
from scans import list_heap
from unharmed import METHODS
from victims import build, command_on, read_truth

# seed, threads, operations per thread and phase, then options of the program.
HEAPS = {
    "one-thread": (1, 1, 20000),
    "drained": (2, 4, 6000, "drain=60"),
    "mmapped": (3, 4, 4000, "drain=30", "fixed"),
    "many-threads": (4, 40, 1500, "drain=30"),
    "blocked-first": (5, 3, 4000, "drain=30", "blocked=1"),
    "blocked-later": (6, 3, 4000, "drain=30", "blocked=2"),
    "forked": (7, 5, 4000, "drain=60", "forked"),
}

TUNABLES = {
    "no-tcache": "glibc.malloc.tcache_count=0",
    "full-tcache": "glibc.malloc.tcache_count=127",
    "large-tcache": "glibc.malloc.tcache_max=4194304",
    "one-arena": "glibc.malloc.arena_max=1",
    "all-mmapped": "glibc.malloc.mmap_threshold=4096",
    "never-mmapped": "glibc.malloc.mmap_max=0",
    "huge-pages": "glibc.malloc.hugetlb=1",
    "perturbed": "glibc.malloc.perturb=165",
    "trimmed": "glibc.malloc.trim_threshold=65536:glibc.malloc.top_pad=4096",
}

STATIC_STARTUP_BLOCKS = 8


@pytest.fixture
def check(victim: StartVictim, truth: Path) -> Callable[..., None]:
    """Start a ground_truth program and compare its heap with what the sweeper lists."""

    def run(
        heap: str,
        command: list[str] | None = None,
        environment: dict[str, str] | None = None,
        own_blocks: int = 0,
    ) -> None:
        seed, threads, *rest = HEAPS[heap]
        target = victim(
            "ground_truth", truth, seed, threads, *rest, command=command, environment=environment
        )
        found = list_heap(target.ready["pid"])
        assert_same_heap(found, read_truth(truth), int(threads) + own_blocks)

    return run


@pytest.mark.parametrize("heap", HEAPS)
def test_system_glibc(check: Callable[..., None], heap: str) -> None:
    check(heap)


@pytest.mark.parametrize("heap", HEAPS)
@pytest.mark.parametrize("suite", SUITES)
def test_other_glibc(check: Callable[..., None], suite: str, heap: str) -> None:
    check(heap, command=command_on(suite, "ground_truth"))


@pytest.mark.parametrize("heap", ["blocked-first", "forked"])
@pytest.mark.parametrize("suite", OLDER_SUITES)
def test_older_glibc(check: Callable[..., None], suite: str, heap: str) -> None:
    check(heap, command=command_on(suite, "ground_truth"))


@pytest.mark.parametrize("heap", HEAPS)
@pytest.mark.parametrize("pie", ["-static", "-static-pie"])
def test_static_program(check: Callable[..., None], pie: str, heap: str) -> None:
    command = [str(build("ground_truth", [pie]))]
    check(heap, command=command, own_blocks=STATIC_STARTUP_BLOCKS)


@pytest.mark.parametrize("tunable", TUNABLES)
def test_system_glibc_tuned(check: Callable[..., None], tunable: str) -> None:
    check("drained", environment={"GLIBC_TUNABLES": TUNABLES[tunable]})


@pytest.mark.parametrize("tunable", TUNABLES)
@pytest.mark.parametrize("suite", SUITES)
def test_other_glibc_tuned(check: Callable[..., None], suite: str, tunable: str) -> None:
    command = command_on(suite, "ground_truth")
    check("drained", command=command, environment={"GLIBC_TUNABLES": TUNABLES[tunable]})


@pytest.mark.parametrize("suite", SUITES)
def test_unstopped_threads_of_other_glibc(victim: StartVictim, truth: Path, suite: str) -> None:
    """Each thread's cache is found though nobody could ask for its thread pointer."""
    command = command_on(suite, "ground_truth")
    target = victim("ground_truth", truth, 5, 3, 3000, "drain=20", command=command)
    assert_same_heap(list_heap(target.pid, "live"), read_truth(truth), own_blocks=3)


@pytest.mark.parametrize("flags", [["-static"], ["-static-pie"]])
def test_unstopped_static_program(victim: StartVictim, truth: Path, flags: list[str]) -> None:
    command = [str(build("ground_truth", flags))]
    target = victim("ground_truth", truth, 5, 3, 3000, "drain=20", command=command)
    found = list_heap(target.pid, "live")
    assert_same_heap(found, read_truth(truth), own_blocks=3 + STATIC_STARTUP_BLOCKS)


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree(victim: StartVictim, truth: Path, method: str) -> None:
    target = victim("ground_truth", truth, 5, 3, 3000, "drain=20")
    assert_same_heap(list_heap(target.pid, method), read_truth(truth), own_blocks=3)
