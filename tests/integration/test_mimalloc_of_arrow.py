"""mimalloc as the libraries of Apache Arrow bundle it for wheels of Python."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import StartVictim
from provisions import wheel_of
from same_heap import whole_blocks
from scans import leaked, list_heap, scan
from unharmed import TRACK
from victims import build, read_truth

PYTHON = "3.10"
SEGMENT_SHIFT = np.uint64(22)


class Bundled(NamedTuple):
    package: str
    library: str
    allocator: str


RELEASES = {
    "1.7": Bundled("pyarrow==8.0.0", "libarrow.so.800", "mimalloc 1"),
    "2.0.6": Bundled("pyarrow==12.0.1", "libarrow.so.1200", "mimalloc 2"),
}


@pytest.fixture(params=RELEASES)
def bundled(request: pytest.FixtureRequest) -> Bundled:
    return RELEASES[request.param]


@pytest.fixture
def command(bundled: Bundled) -> list[str]:
    folder = wheel_of(bundled.package, PYTHON) / "pyarrow"
    ours = ["-pthread", "-D_GLIBCXX_USE_CXX11_ABI=0", "-isystem", f"{folder}/include"]
    linked = [f"-L{folder}", f"-l:{bundled.library}", f"-Wl,-rpath,{folder}"]
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


def test_leaks(victim: StartVictim, truth: Path, command: list[str], bundled: Bundled) -> None:
    target = victim("arrow_pool", truth, command=command)
    report = scan(target.pid, "--all")
    told, found = read_truth(truth), leaked(report)
    lost = whole_blocks(found, told[told[:, 2] == 0])
    assert np.array_equal(found[:, 0], lost[:, 0])
    assert bundled.allocator in report["target"]["allocators"]
