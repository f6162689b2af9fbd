"""Threads that use each other's addresses again: no record is lost, and none is invented."""

from __future__ import annotations

import os
import subprocess

import pytest
import victims

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

EVENTS = os.environ.get("REACHSCAN_CHURN_EVENTS", "4000000")


@pytest.mark.parametrize("min_size", [0, 1], ids=["everything", "filtered"])
def test_nothing_is_lost_and_nothing_invented(min_size: int) -> None:
    flags = ("-std=c++20", f"-I{victims.REPOSITORY / 'native'}", "-pthread")
    settings = RecordingOptions(min_size=min_size).settings(0, "")
    done = subprocess.run(
        [str(victims.build("recorded_churn", flags)), EVENTS],
        env={**os.environ, "LD_PRELOAD": str(RECORDER), VARIABLE: settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    held, wrong = (int(words.split()[0]) for words in done.stdout.split(",")[:2])
    assert held > 1000
    assert wrong == 0
