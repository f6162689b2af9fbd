"""The helper is killed at random moments, again and again; the target never notices."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from conftest import StartVictim
from unharmed import METHODS, Helper, Watched, assert_sound, last_words, times

STORM = int(os.environ.get("REACHSCAN_STORM", "100"))
SEED = int(os.environ.get("REACHSCAN_SEED", "1"))
LEAST_LIMIT = 0.012
"""Seconds. On a busy machine a scan takes longer, and so does the latest death."""


def duration(target: Watched, method: str) -> float:
    """Return the seconds that a scan takes, the machine's hiccups left out."""
    samples = []
    for _ in range(5):
        began = time.monotonic()
        target.helper.scan(target.pid, "--method", method)
        samples.append(time.monotonic() - began)
    return min(samples)


def storm(target: Watched, method: str, runs: int) -> int:
    """Kill that many scans at random moments; return how many were still running then."""
    limit = max(LEAST_LIMIT, 1.2 * duration(target, method))
    moments = random.Random(SEED)
    killed = 0
    runs = times(method, runs)
    for _ in range(runs):
        moment = moments.uniform(0, limit)
        killed += target.helper.kill_after(target.pid, moment, "--method", method)
        target.assert_unharmed()
    print(f"{method}: {killed} of {runs} scans killed within {limit * 1000:.0f} ms")
    assert killed > 0
    target.helper.scan(target.pid, "--method", method)  # it still can be scanned
    return killed


@pytest.mark.parametrize("allocating", [0, 2], ids=["resting", "allocating"])
@pytest.mark.parametrize("method", METHODS)
def test_storm(victim: StartVictim, tmp_path: Path, method: str, allocating: int) -> None:
    victim_process = victim("checker", allocating)
    target = Watched(victim_process.pid, Helper(tmp_path))
    killed = storm(target, method, max(STORM // 4, 1))  # four storms make one
    words = last_words(victim_process)
    print(words)
    # The kernel ends epoll_wait() at a stop; only a living helper can repair that.
    assert_sound(words, cut_short=killed)


@pytest.mark.parametrize("method", METHODS)
def test_storm_under_fire(victim: StartVictim, tmp_path: Path, method: str) -> None:
    """Signals rain on the target meanwhile; each arrives, once."""
    victim_process = victim("signals")
    target = Watched(victim_process.pid, Helper(tmp_path))
    storm(target, method, max(STORM // 8, 1))
    words = last_words(victim_process)
    print(words)
    assert (words["lost"], words["doubled"], words["missing_ticks"]) == (0, 0, 0), words
    assert words["sigchld"] == 0, words
