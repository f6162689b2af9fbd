"""The target never notices: system calls, registers, children, mappings, files, signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import HELPER, assert_let_go, relatives, run_cli, scan
from unharmed import METHODS, assert_undisturbed, times
from victims import thread_states, wait_until

SCANS = int(os.environ.get("REACHSCAN_UNHARMED_SCANS", "5"))


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_noticed(victim: StartVictim, method: str) -> None:
    target = victim("transparent")
    for _ in range(times(method, SCANS)):
        scan(target.pid, "--method", method)
    assert_undisturbed(target.quit())


def outside_view(pid: int) -> dict[str, object]:
    """Return what others can see of a process and a scan must not change."""
    folder = Path(f"/proc/{pid}")
    files = {entry.name: str(entry.readlink()) for entry in (folder / "fd").iterdir()}
    status = (folder / "status").read_text().splitlines()
    kept = ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd", "Threads", "VmSize", "CapEff")
    return {
        "maps": (folder / "maps").read_text(),
        "files": files,
        "status": [line for line in status if line.startswith(kept)],
        "oom": (folder / "oom_score_adj").read_text(),
        "children": (folder / "task" / str(pid) / "children").read_text(),
    }


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_behind(victim: StartVictim, truth: Path, method: str) -> None:
    target = victim("leak_graph", truth, 2000, 10)
    before = outside_view(target.pid)
    for _ in range(3):
        scan(target.pid, "--method", method)
    assert outside_view(target.pid) == before


def test_stopped_process_stays_stopped(victim: StartVictim, truth: Path) -> None:
    target = victim("leak_graph", truth, 2000, 10)
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: thread_states(target.pid) == ["T"], "it has stopped")
    done = run_cli([target.pid, "--json"])
    assert done.status == 1, done.talk
    assert json.loads(done.out)["complete"] is True
    wait_until(lambda: thread_states(target.pid) == ["T"], "it is stopped again")
    os.kill(target.pid, signal.SIGCONT)
    target.quit()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_helper_dies_at_any_moment(victim: StartVictim, signal_number: int) -> None:
    target = victim("transparent")
    before = relatives(target.pid)
    for number in range(4 * SCANS):
        helper = subprocess.Popen(
            [str(HELPER), "--pid", str(target.pid), "--method", "clone"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:  # let it run for a while, each time a little longer
            helper.wait(timeout=number * 0.0005)
        except subprocess.TimeoutExpired:
            helper.send_signal(signal_number)
        helper.wait()
    wait_until(lambda: relatives(target.pid) <= before, "no clone is left")
    assert_let_go(target.pid, before)
    scan(target.pid)
    counters = json.loads(target.quit())
    # A call that was stopped but not yet repaired when the helper was killed may end early.
    counters["cut_short"] = {}
    assert_undisturbed(json.dumps(counters))
