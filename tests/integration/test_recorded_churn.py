"""Threads that use each other's addresses again: no record is lost, and none is invented."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import victims
from attached import without_entries
from conftest import StartVictim
from scans import run_cli

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

EVENTS = os.environ.get("REACHSCAN_CHURN_EVENTS", "4000000")


FLAGS = ("-std=c++20", f"-I{victims.REPOSITORY / 'native'}", "-pthread")

LOADS = "import ctypes, sys; held = [ctypes.CDLL(path) for path in sys.argv[1:]]"


def assert_exact(told: str) -> None:
    held, wrong = (int(words.split()[0]) for words in told.split(",")[:2])
    assert held > 1000
    assert wrong == 0


@pytest.mark.parametrize("min_size", [0, 1], ids=["everything", "filtered"])
def test_nothing_is_lost_and_nothing_invented(min_size: int) -> None:
    settings = RecordingOptions(min_size=min_size).settings(0, "")
    done = subprocess.run(
        [str(victims.build("recorded_churn", FLAGS)), EVENTS],
        env={**os.environ, "LD_PRELOAD": str(RECORDER), VARIABLE: settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_exact(done.stdout)


@pytest.mark.parametrize("hooked", ["entries", "words"])
def test_nor_after_attach(victim: StartVictim, hooked: str) -> None:
    churn = victim(
        "recorded_churn",
        command=[str(victims.build("recorded_churn", FLAGS)), EVENTS, "wait"],
        environment=without_entries() if hooked == "words" else {},
    )
    assert run_cli(["attach", churn.pid]).status == 0
    assert churn.process.stdin
    churn.process.stdin.write(b"begin\n")
    assert_exact(churn.quit())


def test_more_libraries_than_there_is_room_for(tmp_path: Path) -> None:
    """Those without a row would be given the names of others that are at their places later."""
    flags = ("-shared", "-fPIC", "-DLIBRARY", "-DLOST_BYTES=3333", "-DROOM=10")
    one = victims.build("reloads", flags)
    many = [shutil.copy(one, tmp_path / f"{i}.so") for i in range(100)]
    report = tmp_path / "report.json"
    options = ["run", "--memory", "1M", "--json", "-o", report, "--limit", "1000"]
    run_cli([*options, "--", sys.executable, "-c", LOADS, *many])
    told = json.loads(report.read_text())
    assert told["target"]["recorder"]["stopped"]["reason"] == "full"
    lost = [group for group in told["groups"] if group["bytes"] > 3333 * group["allocations"]]
    named = [group for group in lost if group["stack"] is not None]
    assert 0 < sum(group["allocations"] for group in named) < len(many)
    assert sum(group["allocations"] for group in lost) >= len(many) - 1
