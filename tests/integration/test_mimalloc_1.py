"""mimalloc 1.7, which the libraries of Apache Arrow 6 to 8 bundle for wheels of Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from provisions import wheel_of
from same_heap import whole_blocks
from scans import leaked, list_heap, scan
from unharmed import TRACK
from victims import build, read_truth

PACKAGE, PYTHON, LIBRARY = "pyarrow==8.0.0", "3.10", "libarrow.so.800"
SEGMENT_SHIFT = np.uint64(22)


@pytest.fixture
def command() -> list[str]:
    folder = wheel_of(PACKAGE, PYTHON) / "pyarrow"
    ours = ["-pthread", "-D_GLIBCXX_USE_CXX11_ABI=0", "-isystem", f"{folder}/include"]
    linked = [f"-L{folder}", f"-l:{LIBRARY}", f"-Wl,-rpath,{folder}"]
    return [str(build("arrow_pool", [*ours, *linked]))]


@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
def test_enumeration(victim: StartVictim, truth: Path, command: list[str], method: str) -> None:
    target = victim("arrow_pool", truth, command=command)
    told, found = read_truth(truth), list_heap(target.pid, method)
    # Arrow and libc have blocks of their own, elsewhere.
    found = found[np.isin(found[:, 0] >> SEGMENT_SHIFT, told[:, 0] >> SEGMENT_SHIFT)]
    whole = whole_blocks(found, told)
    assert np.array_equal(found[:, 0], whole[:, 0])
    assert (found[:, 1] >= whole[:, 1]).all()


def test_leaks(victim: StartVictim, truth: Path, command: list[str]) -> None:
    target = victim("arrow_pool", truth, command=command)
    report = scan(target.pid, "--all")
    told, found = read_truth(truth), leaked(report)
    lost = whole_blocks(found, told[told[:, 2] == 0])
    assert np.array_equal(found[:, 0], lost[:, 0])
    assert "mimalloc 1" in report["target"]["allocators"]
