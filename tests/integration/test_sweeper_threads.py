"""A clone in which several threads search dies as a whole when its helper does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import HELPER, assert_let_go, relatives
from victims import wait_until

THREADS = 4
BLOCKS = 2_000_000  # enough for each thread


def threads_of_clones(pid: int) -> int:
    """Return the largest number of threads that a process with this one's memory has."""
    numbers = [0]
    for other in relatives(pid):
        try:
            numbers.append(len(list(Path(f"/proc/{other}/task").iterdir())))
        except OSError:  # it has ended since
            continue
    return max(numbers)


@pytest.mark.parametrize("moment", ["while they search", "as soon as there are two"])
def test_clone_dies_with_all_threads(victim: StartVictim, truth: Path, moment: str) -> None:
    target = victim("leak_graph", truth, BLOCKS, 1)
    least = THREADS if moment == "while they search" else 2
    command = [str(HELPER), "--pid", str(target.pid), "--threads", str(THREADS)]
    helper = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: threads_of_clones(target.pid) >= least, f"{least} threads search")
    finally:
        helper.kill()
        helper.wait()
    wait_until(lambda: not relatives(target.pid), "the clone is gone")
    assert_let_go(target.pid, set())
