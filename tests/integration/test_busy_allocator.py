"""A process that is busy with its allocator is scanned exactly, time after time.

Where no moment comes at which the allocator is at rest, one sentence says what keeps it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from scans import FAILED, leaked, run_cli, scan
from unharmed import TRACK
from victims import GIVING_BACK, command_on, read_truth

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "6"))
LEAKS = 500


def scan_repeatedly(
    pid: int, truth: Path, times: int, *options: object, most_missed: int = 0
) -> None:
    expected = read_truth(truth)
    for number in range(times):
        report = scan(pid, "--all", *options)
        found = leaked(report)
        missed = np.setdiff1d(expected[:, 0], found[:, 0])
        wrong = found[~np.isin(found[:, 0], expected[:, 0])]
        detail = [(hex(a), int(size)) for a, size, _ in wrong[:20]]
        assert len(wrong) == 0, f"scan {number}: live blocks reported: {detail}"
        assert len(missed) <= most_missed, f"scan {number}: missed {[hex(a) for a in missed[:20]]}"


@pytest.mark.parametrize("threads", [2, 8])
def test_system_glibc(victim: StartVictim, truth: Path, threads: int) -> None:
    target = victim("busy_threads", truth, threads, LEAKS)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize("arenas", ["1", "64"])
@pytest.mark.parametrize("method", ["clone", "copy"])
def test_threads_that_come_and_go(
    victim: StartVictim, truth: Path, method: str, arenas: str
) -> None:
    """Exited ones leave addresses of their caches behind, which others have by then."""
    environment = {"MALLOC_ARENA_MAX": arenas}
    target = victim("busy_threads", truth, 6, LEAKS, 500, environment=environment)
    scan_repeatedly(target.pid, truth, SCANS, "--method", method)


@pytest.mark.parametrize("operations", [0, 500])
@pytest.mark.parametrize("suite", ["xenial", "bionic", "bullseye", "trixie", "sid"])
def test_other_glibc(victim: StartVictim, truth: Path, suite: str, operations: int) -> None:
    command = command_on(suite, "busy_threads")
    target = victim("busy_threads", truth, 4, LEAKS, operations, command=command)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))


@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
@pytest.mark.parametrize("threads", [0, 8])
def test_memory_that_comes_and_goes(
    victim: StartVictim, truth: Path, threads: int, method: str
) -> None:
    """A single thread locks nothing; what it has half done shows in where it is, and only there."""
    target = victim("busy_threads", truth, threads, LEAKS, environment=GIVING_BACK)
    scan_repeatedly(target.pid, truth, SCANS, "--method", method)


def test_heap_that_grows_while_it_is_read(victim: StartVictim, truth: Path) -> None:
    """Reading it all takes longer than it ever rests."""
    target = victim("keeps_growing", truth, LEAKS)
    scan_repeatedly(target.pid, truth, 2, "--method", "live")


def test_heap_that_never_rests(victim: StartVictim, truth: Path) -> None:
    """Without a stop it is a matter of luck: it is refused, with what helps, or the truth told."""
    target = victim("busy_threads", truth, 8, LEAKS)
    done = run_cli(["scan", target.pid, "--json", "--all", "--method", "live"])
    talk = " ".join(done.talk.split())
    if done.status == FAILED:
        assert f"the heap of process {target.pid} changes too fast to be read while it runs" in talk
        assert "use --method clone or copy" in talk
        assert "corrupt" not in talk
    else:
        assert np.isin(leaked(json.loads(done.out))[:, 0], read_truth(truth)[:, 0]).all(), talk


@pytest.mark.parametrize("threads", [1, 2])
def test_handler_that_interrupted_malloc(victim: StartVictim, truth: Path, threads: int) -> None:
    target = victim("interrupted_malloc", truth, threads, LEAKS)
    refused = run_cli(["scan", target.pid])
    assert refused.status == FAILED, refused.out
    sentence = f"a signal handler has interrupted the allocator in thread {target.pid}, and waits"
    assert sentence in " ".join(refused.talk.split())
    assert target.process.stdin is not None
    target.process.stdin.write(b"\n")
    target.process.stdin.flush()
    assert "returned" in target.read_line()
    scan_repeatedly(target.pid, truth, 1)
