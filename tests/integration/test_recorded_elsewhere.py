"""Allocations are recorded through `--on` as they are here, and nothing is left there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attached import Surroundings, assert_served, functions, report_of_hunt
from conftest import StartVictim
from scans import FAILED, PATIENTLY, run_cli
from test_elsewhere import assert_nothing_left
from unharmed import Helper, Watched
from victims import REPOSITORY
from worlds import need_root

pytestmark = need_root

THERE = ("--on", "exec:env")
STOPS = 4


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_where_names_who_loses_blocks(victim: StartVictim) -> None:
    """Ctrl-C ends the recording, and with it the program that keeps the connection."""
    server = victim("serving", 2, 1000)
    surroundings = Surroundings(server.pid)
    report = report_of_hunt(server, *THERE)
    assert report["leaks"]["allocations"] > 0
    for group in report["groups"]:
        assert functions(report, group)[:3] == ["lose_session", "answer", "run"]
    surroundings.assert_same()
    assert_nothing_left()
    assert_served(server)


def test_attach_and_detach(victim: StartVictim) -> None:
    server = victim("serving", 2, 1000)
    surroundings = Surroundings(server.pid)
    options = ["--sizes", "24,100-300", "--module", "/(no such|serving)$", "--thread", "serv"]
    attached = run_cli(["attach", *THERE, server.pid, *options, "--json"])
    assert json.loads(attached.out)["hooks"] >= 10, attached.talk
    report = json.loads(run_cli(["scan", *THERE, server.pid, "--json"]).out)
    assert report["target"]["recorder"]["sizes"] == [[24, 24], [100, 300]]
    assert report["target"]["recorder"]["records"] > 0
    again = run_cli(["attach", *THERE, server.pid])
    assert again.status == FAILED and "is already being recorded" in again.talk
    detached = run_cli(["detach", *THERE, server.pid, "--json"])
    assert json.loads(detached.out)["kept_bytes"] == 0, detached.talk
    surroundings.assert_same()
    assert_nothing_left()
    assert_served(server)


def test_an_interrupted_attach(victim: StartVictim, tmp_path: Path) -> None:
    """The helper there is stuck, so that only the end of the connection can tell it.

    What it leaves, detach removes.
    """
    server = victim("serving", 2, 0)
    surroundings = Surroundings(server.pid)
    watched = Watched(server.pid, Helper(tmp_path))
    calls = watched.helper.scan(server.pid, "--attach", "depth=32", "--count-calls").calls
    watched.helper.scan(server.pid, "--detach")
    stuck, times = tmp_path / "stuck", 0
    for number in range(STOPS):
        watched.helper.write_stalling(stuck, call=calls * (number + 1) // (STOPS + 1))
        with subprocess.Popen(
            [sys.executable, "-m", "reachscan", "attach", *THERE, str(server.pid)],
            cwd=REPOSITORY,
            env={**os.environ, "REACHSCAN_HELPER": str(stuck)},
            stderr=subprocess.PIPE,
        ) as process:
            stalled = watched.helper.stalls(process)  # not if it needed fewer calls this time
            process.terminate()
            assert process.wait() == (130 if stalled else 0)
            times += stalled
        assert_nothing_left()
        watched.wait_until_free()
        watched.assert_unharmed()
        watched.helper.run(server.pid, "--detach", *PATIENTLY)  # refused if nothing is left
        surroundings.assert_same()
    assert times > 0
    assert_served(server)
