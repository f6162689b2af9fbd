"""No system call ends that would have gone on, none goes on that would have ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import StartVictim
from unharmed import METHODS, Helper, Watched, last_words, times

SCANS = int(os.environ.get("REACHSCAN_TRANSPARENT_SCANS", "20"))
WAIT_SECONDS = 2
LATE_SECONDS = 1.0
"""How late a busy machine may be."""


class Signals(NamedTuple):
    """What became of the signals that were sent to a call, and how often it returned."""

    sent: int
    late: int
    """How many more were sent when the call may have been going on already."""
    handled: int
    interrupted: int
    spurious: int

    @property
    def are_right(self) -> bool:
        return (
            self.handled == self.sent + self.late
            and self.sent <= self.interrupted <= self.handled
            and self.spurious == 0
        )


@pytest.mark.parametrize("method", METHODS)
def test_calls_go_on(victim: StartVictim, tmp_path: Path, method: str) -> None:
    victim_process = victim("transparent")
    helper = Helper(tmp_path)
    target = Watched(victim_process.pid, helper)
    for _ in range(times(method, SCANS)):
        assert helper.scan(target.pid, "--method", method).method == method
        target.assert_unharmed()
    words = last_words(victim_process)
    calls = words.pop("cut_short")
    print(f"{method}: {len(calls)} calls")
    assert {name: count for name, count in calls.items() if count} == {}
    rounds = words.pop("register_rounds"), words.pop("call_rounds")
    assert min(rounds) > 0
    assert {name: count for name, count in words.items() if count} == {}


@pytest.mark.parametrize("method", METHODS)
def test_real_signals_still_interrupt(victim: StartVictim, tmp_path: Path, method: str) -> None:
    """Signals are sent while the target stands still: each call returns EINTR once for each."""
    victim_process = victim("woken")
    helper = Helper(tmp_path)
    for _ in range(times(method, SCANS)):
        helper.scan(victim_process.pid, "--method", method)
    calls = {name: Signals(*counts) for name, counts in last_words(victim_process).items()}
    assert {name: counts for name, counts in calls.items() if not counts.are_right} == {}
    sent = sum(counts.sent for counts in calls.values())
    late = sum(counts.late for counts in calls.values())
    print(f"{method}: {sent} signals sent to {len(calls)} stopped calls, {late} perhaps too late")
    assert (sent > 0) == (method != "live"), "which methods stop the target?"


@pytest.mark.parametrize("method", METHODS)
def test_deadlines_are_kept(victim: StartVictim, tmp_path: Path, method: str) -> None:
    began = time.monotonic()
    victim_process = victim("deadlines", WAIT_SECONDS)
    helper = Helper(tmp_path)
    scans = 0
    while time.monotonic() - began < WAIT_SECONDS * 0.8:
        helper.scan(victim_process.pid, "--method", method)
        scans += 1
    last_scan = time.monotonic() - began
    waits: dict[str, tuple[int, int]] = json.loads(victim_process.read_line())
    early = {name: late for name, (late, _) in waits.items() if late < 0}
    assert early == {}
    on_time = {name: late for name, (late, again) in waits.items() if not again}
    # The kernel starts the others again with their full time, so the last scan counts.
    again = {name: late for name, (late, again) in waits.items() if again}
    print(f"{method}: {scans} scans, ms late: {on_time}, with full time again: {again}")
    assert max(on_time.values()) < LATE_SECONDS * 1000, on_time
    assert max(again.values()) < (last_scan + LATE_SECONDS) * 1000, again


@pytest.mark.parametrize("method", METHODS)
def test_restartable_sequences(victim: StartVictim, tmp_path: Path, method: str) -> None:
    """Who is stopped inside such a sequence starts it anew, as after any interruption."""
    victim_process = victim("rseq_section")
    helper = Helper(tmp_path)
    for _ in range(times(method, SCANS)):
        helper.scan(victim_process.pid, "--method", method)
    words = last_words(victim_process)
    assert words["broken"] == 0 and words["aborts"] > 0, words
