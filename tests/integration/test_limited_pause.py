"""How long the target may be stopped is known before, and held to whatever happens."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import FAILED, HELPER, run_cli
from unharmed import (
    METHODS,
    RELEASE,
    TRACK,
    TRIES,
    Ending,
    Helper,
    Watched,
    assert_sound,
    last_words,
)
from victims import thread_states, wait_blocked, wait_until

MEGABYTES = 400
CALLS_WITHIN_A_PAUSE = (25, 35, 45)
SHORT = 3
"""Milliseconds: too short for a clone of that, long enough to look for what was written."""


def switches(pid: int) -> list[str]:
    """Return how often each thread gave its processor up, as one does that is stopped."""
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir())
    return [
        line
        for task in tasks
        for line in (task / "status").read_text().splitlines()
        if "ctxt_switches" in line
    ]


@pytest.mark.parametrize("call", CALLS_WITHIN_A_PAUSE)
@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
def test_tracer_that_is_stuck(victim: StartVictim, tmp_path: Path, method: str, call: int) -> None:
    """The helper is ended, whatever it is doing, and the target goes on."""
    target = victim("checker")
    watched = Watched(target.pid, Helper(tmp_path))
    ending = watched.helper.run(
        target.pid, "--method", method, "--max-pause", 200, "--stall-at-call", call
    )
    watched.assert_unharmed()
    assert (ending.status, ending.code) == (1, "pause-too-long")
    assert "longer than 200 ms" in ending.sentence
    # The stop may have been before the calls that it interrupts were repaired.
    assert_sound(last_words(target), cut_short=1)


def test_the_usual_limit_is_a_second(victim: StartVictim, tmp_path: Path) -> None:
    target = victim("checker")
    stuck = tmp_path / "reachscan-helper"
    stuck.write_text(f'#!/bin/sh\nexec {HELPER} "$@" --stall-at-call {CALLS_WITHIN_A_PAUSE[0]}\n')
    stuck.chmod(0o755)
    done = run_cli([target.pid, "--method", "copy"], {"REACHSCAN_HELPER": str(stuck)})
    assert done.status == FAILED
    assert "longer than 1000 ms" in done.talk and "--max-pause" in done.talk
    assert done.talk.count("\n") == 1
    assert_sound(last_words(target), cut_short=1)


def urgency(pid: int) -> set[int]:
    """Return the real-time priorities of a process's threads."""
    threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    urgent = [thread for thread in threads if os.sched_getscheduler(thread) == os.SCHED_FIFO]
    return {os.sched_getparam(thread).sched_priority for thread in urgent}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have real-time priority")
def test_a_pause_need_not_wait_for_other_programs(victim: StartVictim) -> None:
    target = victim("checker")
    call = CALLS_WITHIN_A_PAUSE[0]
    words = ["--method", "copy", "--max-pause", "60000", "--stall-at-call", str(call)]
    with subprocess.Popen([HELPER, *words, str(target.pid)], stdout=subprocess.DEVNULL) as helper:
        try:
            wait_until(lambda: set(thread_states(target.pid)) == {"t"}, "the target is stopped")
            wait_until(lambda: urgency(helper.pid) == {1, 2}, "tracer and its limit are urgent")
        finally:
            helper.kill()
    assert_sound(last_words(target), cut_short=1)


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_what_takes_too_long_is_not_begun(victim: StartVictim, method: str) -> None:
    target = victim("large", MEGABYTES)
    wait_blocked(target.pid)
    before = switches(target.pid)
    done = run_cli([target.pid, "--method", method, "--max-pause", 1])
    assert switches(target.pid) == before, "it was stopped"
    assert done.status == FAILED
    assert f"the method {method} would probably stop" in done.talk
    assert "the limit is 1 ms" in done.talk


@pytest.mark.skipif(RELEASE < (6, 7), reason="Linux before 6.7 cannot track writes")
def test_track_is_chosen_if_a_clone_takes_too_long(victim: StartVictim, tmp_path: Path) -> None:
    target = victim("large", MEGABYTES)
    ending = scan_in_time(Helper(tmp_path), target.pid, SHORT)
    assert (ending.status, ending.method) == (0, "track"), ending


def scan_in_time(helper: Helper, pid: int, milliseconds: int) -> Ending:
    """Scan until it is done in time: a busy machine may take longer, even to stop a thread."""
    for _ in range(TRIES):
        ending = helper.run(pid, "--max-pause", milliseconds)
        if ending.method != "live" and "it was let go" not in ending.sentence:
            break
    return ending


@pytest.mark.parametrize("method", METHODS)
def test_a_long_limit_changes_nothing(
    victim: StartVictim, truth: Path, tmp_path: Path, method: str
) -> None:
    target = victim("leak_graph", truth, 1000, 50)
    helper = Helper(tmp_path)
    ending = helper.scan(target.pid, "--method", method, "--max-pause", 60_000)
    assert ending.method == method


@pytest.mark.parametrize("command", ["heap", "explain", "refs", "watch"])
def test_all_commands_that_scan_know_the_limit(victim: StartVictim, command: str) -> None:
    target = victim("large", MEGABYTES)
    address = ["0x1000"] if command in ("explain", "refs") else []
    count = ["--count", 1] if command == "watch" else []
    options = ["--method", "copy", "--max-pause", 1]
    done = run_cli([command, target.pid, *address, *count, *options])
    assert done.status == FAILED
    assert "the limit is 1 ms" in done.talk
