"""Threads that use each other's addresses again: no record is lost, and none is invented."""

from __future__ import annotations

import os
import subprocess

import pytest
import victims
from attached import without_entries
from conftest import StartVictim
from scans import run_cli

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

EVENTS = os.environ.get("REACHSCAN_CHURN_EVENTS", "4000000")


FLAGS = ("-std=c++20", f"-I{victims.REPOSITORY / 'native'}", "-pthread")


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
