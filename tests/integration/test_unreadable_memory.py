"""Pages that are mapped and cannot be read cost a scan neither its life nor its exactness."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from scans import leaked, scan
from test_roots import scenes_of, wrong_about
from unharmed import METHODS
from victims import read_truth


@pytest.mark.parametrize("method", METHODS)
def test_guard_pages(victim: StartVictim, truth: Path, tmp_path: Path, method: str) -> None:
    target = victim("guard_pages", truth, tmp_path / "scratch")
    found = leaked(scan(target.pid, "--all", "--method", method))
    assert np.array_equal(found[:, :2], read_truth(truth)[:, :2])


@pytest.mark.usefixtures("tmp_path")
def test_kernel_has_guard_pages(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    target = victim("guard_pages", truth, tmp_path / "scratch")
    if not target.ready["guard_pages"]:
        pytest.skip("this kernel has no MADV_GUARD_INSTALL (Linux 6.13); the rest was tested")


@pytest.mark.parametrize("method", METHODS)
def test_protection_keys(victim: StartVictim, method: str) -> None:
    target = victim("protection_keys")
    report = scan(target.pid, "--all", "--method", method)
    assert wrong_about(scenes_of(target), report) == {}
    assert "unreadable-memory" not in [warning["code"] for warning in report["warnings"]]
    if " ospke" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no protection keys; the same was tested without them")
