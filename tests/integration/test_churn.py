"""Many threads, threads and processes being born, many scans: the target stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import Finished
from unharmed import (
    METHODS,
    Helper,
    Watched,
    assert_sound,
    last_words,
    layout,
    open_files,
    times,
)
from victims import REPOSITORY

THREADS = int(os.environ.get("REACHSCAN_MANY_THREADS", "1000"))
SCANS = int(os.environ.get("REACHSCAN_CHURN_SCANS", "20"))
LOOP = int(os.environ.get("REACHSCAN_LOOP_SCANS", "40"))
AT_ONCE = 4
GROWTH = 256 << 10
"""Bytes. The one page of the vdso that is written to, and what the kernel counts late."""


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


@pytest.mark.parametrize("method", METHODS)
def test_many_threads(victim: StartVictim, helper: Helper, method: str) -> None:
    target = Watched(victim("crowd", "sleep", THREADS).pid, helper)
    for _ in range(3):
        helper.scan(target.pid, "--method", method)
        target.assert_unharmed()


@pytest.mark.parametrize("kind", ["born", "fork"])
@pytest.mark.parametrize("method", METHODS)
def test_births(victim: StartVictim, helper: Helper, method: str, kind: str) -> None:
    """The target checks each of its children; a scan may be refused now and then."""
    victim_process = victim("crowd", kind, 4)
    target = Watched(victim_process.pid, helper)
    endings = []
    for _ in range(SCANS):
        endings.append(helper.run(target.pid, "--method", method))
        assert endings[-1].status >= 0, f"the helper crashed: {endings[-1].talk}"
        target.assert_free()
    failures = [f"{ending.code}: {ending.sentence}" for ending in endings if ending.status != 0]
    words = last_words(victim_process)
    print(f"{method}, {kind}: {words['born']} born, {len(failures)} of {SCANS} scans {failures}")
    assert words["born"] > 0
    assert len(failures) <= SCANS // 4, failures


def start_cli(pid: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "reachscan", str(pid), "--format", "logfmt"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_several_scans_at_once(victim: StartVictim, helper: Helper) -> None:
    victim_process = victim("checker")
    target = Watched(victim_process.pid, helper)
    for _ in range(3):
        running = [start_cli(target.pid) for _ in range(AT_ONCE)]
        for process in running:
            out, talk = process.communicate()
            assert process.returncode in (0, 1), Finished(process.returncode, out, talk)
    target.assert_unharmed()
    assert_sound(last_words(victim_process))


@pytest.mark.parametrize("method", METHODS)
def test_several_helpers_at_once(victim: StartVictim, helper: Helper, method: str) -> None:
    """At the same moment, as far as that goes: each waits for those before it."""
    victim_process = victim("checker")
    target = Watched(victim_process.pid, helper)
    command = helper.command(target.pid, "--method", method)
    for _ in range(times(method, SCANS)):
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(AT_ONCE)]
        assert [process.wait() for process in running] == [0] * AT_ONCE
        target.assert_unharmed()
    assert_sound(last_words(victim_process))


def memory_of(pid: int) -> dict[str, int]:
    """Return what a process takes, in bytes, by kind."""
    wanted = ("VmSize", "VmRSS", "VmData", "VmPTE")
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) << 10 for name in wanted}


@pytest.mark.parametrize("method", METHODS)
def test_many_scans_leave_nothing(
    victim: StartVictim, helper: Helper, tmp_path: Path, method: str
) -> None:
    pid = victim("crowd", "sleep", 4).pid
    helper.scan(pid, "--method", method)
    before = layout(pid), open_files(pid), memory_of(pid)
    litter = tmp_path / "temporary"
    litter.mkdir()
    environment = {**os.environ, "TMPDIR": str(litter)}
    command = helper.command(pid, "--method", method)
    for _ in range(times(method, LOOP)):
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    assert (layout(pid), open_files(pid)) == before[:2]
    grown = {name: size - before[2][name] for name, size in memory_of(pid).items()}
    print(f"{method}: grown by {grown} bytes")
    assert max(grown.values()) <= GROWTH, grown
    assert list(litter.iterdir()) == []
    assert not list(Path("/dev/shm").glob("*reachscan*"))
