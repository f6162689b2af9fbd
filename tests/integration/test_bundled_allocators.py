"""Allocators that stripped programs bundle under other names: nothing but structure shows them."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from conftest import StartVictim
from prefixed import bundled
from provisions import provide_all
from same_heap import assert_same_preloaded_heap
from scans import list_heap, scan
from test_busy_allocator import scan_repeatedly
from test_leak_graph import assert_same_leaks
from victims import build, read_truth

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.a"
LINKAGES = {"dynamic": [], "static": ["-static"]}


def command(name: str, linkage: str) -> list[str]:
    """Return the command that runs a fixture program on a jemalloc of its own, called je_malloc."""
    provide_all("libjemalloc-dev")
    return [str(build(name, [*bundled(JEMALLOC, "je_"), *LINKAGES[linkage]]))]


@pytest.mark.parametrize("linkage", LINKAGES)
def test_enumeration(victim: StartVictim, truth: Path, linkage: str) -> None:
    program = command("ground_truth", linkage)
    target = victim("ground_truth", truth, 4, 5, 4000, "drain=40", command=program)
    assert_same_preloaded_heap(list_heap(target.pid), read_truth(truth), 5)


def test_busy(victim: StartVictim, truth: Path) -> None:
    target = victim("busy_threads", truth, 4, 500, command=command("busy_threads", "static"))
    scan_repeatedly(target.pid, truth, 1)


def test_leak_graph(victim: StartVictim, truth: Path) -> None:
    program = command("leak_graph", "dynamic")
    target = victim("leak_graph", truth, 20_000, 10, command=program)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    names = [f"glibc {platform.libc_ver()[1]}", "jemalloc 5.3"]
    assert report["target"]["allocators"] == names
