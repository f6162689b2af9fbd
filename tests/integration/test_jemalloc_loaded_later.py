"""A jemalloc in a library that is loaded later: its thread-local variables are blocks of libc."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from provisions import wheel_of
from scans import leaked, list_heap, scan
from victims import Truth, build, read_truth

PACKAGE, PYTHON, LIBRARY = "pyarrow==12.0.1", "3.10", "libarrow.so.1200"
LOADER = """
import ctypes, sys
main = ctypes.CDLL(sys.argv[1]).main
main(2, (ctypes.c_char_p * 3)(b"", sys.argv[2].encode(), None))
"""
CHUNK_SHIFT = np.uint64(21)


@pytest.fixture
def command() -> list[str]:
    folder = wheel_of(PACKAGE, PYTHON) / "pyarrow"
    ours = ["-pthread", "-D_GLIBCXX_USE_CXX11_ABI=0", "-isystem", f"{folder}/include"]
    linked = [f"-L{folder}", f"-l:{LIBRARY}", f"-Wl,-rpath,{folder}"]
    pool = ["-shared", "-fPIC", "-DPOOL=arrow::jemalloc_memory_pool"]
    return [sys.executable, "-c", LOADER, str(build("arrow_pool", [*ours, *pool, *linked]))]


def of_pool(found: Truth, told: Truth) -> Truth:
    """Leave out the blocks of libc."""
    return found[np.isin(found[:, 0] >> CHUNK_SHIFT, told[:, 0] >> CHUNK_SHIFT)]


def test_enumeration(victim: StartVictim, truth: Path, command: list[str]) -> None:
    """What threads keep in their caches is free."""
    target = victim("arrow_pool", truth, command=command)
    told, found = read_truth(truth), list_heap(target.pid)
    found = of_pool(found, told)
    assert np.array_equal(found[:, 0], told[:, 0])


def test_leaks(victim: StartVictim, truth: Path, command: list[str]) -> None:
    target = victim("arrow_pool", truth, command=command)
    report = scan(target.pid, "--all")
    told = read_truth(truth)
    found = of_pool(leaked(report), told)
    lost = told[told[:, 2] == 0]
    assert len(np.setdiff1d(found[:, 0], lost[:, 0])) == 0
    # A word that is left on a stack may hide one.
    assert len(found) >= 0.95 * len(lost)
    assert report["complete"]
    assert any(name.startswith("jemalloc") for name in report["target"]["allocators"])
