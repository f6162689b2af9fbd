"""A process whose threads never leave the allocator is scanned exactly, time after time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from scans import leaked, scan
from victims import command_on, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "20"))
LEAKS = 500


def scan_repeatedly(pid: int, truth: Path, times: int) -> None:
    expected = read_truth(truth)
    for number in range(times):
        report = scan(pid, "--all")
        found = leaked(report)
        missed = np.setdiff1d(expected[:, 0], found[:, 0])
        wrong = found[~np.isin(found[:, 0], expected[:, 0])]
        detail = [(hex(a), int(size)) for a, size, _ in wrong[:20]]
        assert len(wrong) == 0, f"scan {number}: live blocks reported: {detail}"
        assert len(missed) == 0, f"scan {number}: missed {[hex(a) for a in missed[:20]]}"


@pytest.mark.parametrize("threads", [2, 8])
def test_system_glibc(victim: StartVictim, truth: Path, threads: int) -> None:
    target = victim("busy_threads", truth, threads, LEAKS)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize("suite", ["bullseye", "trixie", "sid"])
def test_other_glibc(victim: StartVictim, truth: Path, suite: str) -> None:
    command = command_on(suite, "busy_threads")
    target = victim("busy_threads", truth, 4, LEAKS, command=command)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))
