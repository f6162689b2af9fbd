"""A command line that is run in a fork of a loaded process ends as one that was started for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from loaded_cli import loaded_cli
from scans import PATIENCE


def started(words: list[str]) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "reachscan", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [["scan", "--help"], ["report"], ["report", "-v", "no-file"]])
def test_status_and_words(words: list[str]) -> None:
    assert loaded_cli().run(words, PATIENCE) == started(words)


def test_variables_of_the_test(target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REACHSCAN_HELPER", "/no/helper")
    assert loaded_cli().run(["scan", str(target)], PATIENCE) == started(["scan", str(target)])


def test_what_takes_too_long_is_killed(
    target: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\nexec tail --pid $PPID -f /dev/null\n")
    helper.chmod(0o755)
    monkeypatch.setenv("REACHSCAN_HELPER", str(helper))
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, _: killed.append(os.pidfd_open(process)))
    with pytest.raises(socket.timeout):
        loaded_cli().run(["scan", str(target)], seconds=0.5)
    (process,) = killed
    signal.pidfd_send_signal(process, signal.SIGKILL)
    os.close(process)
