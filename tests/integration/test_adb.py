"""Scans through a real daemon, server and client of adb."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import adb_device
import pytest
from conftest import StartVictim
from scans import FAILED, run_cli
from test_elsewhere import (
    asked,
    assert_cuts_do_no_harm,
    assert_nothing_left,
    assert_refused,
    cache,
)
from test_helper_alone import VTABLE
from unharmed import Helper, Watched, assert_sound, last_words
from victims import REPOSITORY, build
from worlds import NOBODY, as_user, need_root, public_copy, public_folder

pytestmark = need_root

__all__ = ["cache"]

PACKAGE = "org.example.sessions"
LEAKS = 2400


@pytest.fixture(scope="module")
def adb() -> Iterator[adb_device.Device]:
    """Start a device that nothing is connected to. Debug builds of a package may be run as it."""
    with public_folder() as folder, public_folder() as path:
        run_as = path / "run-as"
        become = " ".join(as_user(NOBODY, "env"))
        run_as.write_text(f'#!/bin/sh\n[ "$1" = {PACKAGE} ] && shift && exec {become} "$@"\n')
        run_as.chmod(0o755)
        with adb_device.running(folder, path) as device:
            yield device


@pytest.fixture
def client(adb: adb_device.Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[adb_device.Device]:
    """Let `--on adb:` use that client, which ends without a connection as it began."""
    monkeypatch.setenv("PATH", f"{adb.programs}:{os.environ['PATH']}")
    yield adb
    adb.adb("disconnect")


@pytest.fixture
def serial(client: adb_device.Device) -> str:
    return client.connect()


def test_a_device(victim: StartVictim, serial: str, tmp_path: Path) -> None:
    with public_copy(build("leaky_sessions", ["-g"])) as program:
        named = program.rename(program.with_name("sessions_of_adb"))
        target = victim("leaky_sessions", command=[str(named), "once"])
        saved = tmp_path / "saved.rsc"
        report = asked("scan", "--on", f"adb:{serial}", target.pid, "--save", saved)
        assert report == asked("scan", target.pid)
        assert report["leaks"]["allocations"] == LEAKS
        assert VTABLE.partition("+")[2] in str(report["groups"])
        assert asked("report", saved)["groups"] == report["groups"]
        assert asked("scan", "--on", "adb:", named.name) == report
    assert_nothing_left()


def test_no_device(client: adb_device.Device) -> None:
    assert_refused(run_cli(["scan", "--on", "adb:", 1]), "adb sees no device")


def test_several_devices(client: adb_device.Device) -> None:
    serials = [client.connect(address) for address in adb_device.ADDRESSES]
    done = run_cli(["scan", "--on", "adb:", 1])
    assert done.status == FAILED and "2 devices are attached" in done.talk
    for serial in serials:
        assert f"{serial}  device" in done.talk


def test_an_unknown_device(serial: str) -> None:
    assert_refused(run_cli(["scan", "--on", "adb:R58M", 1]), "device 'R58M' not found")


def test_a_connection_that_is_cut(victim: StartVictim, serial: str, tmp_path: Path) -> None:
    assert_cuts_do_no_harm(victim("checker", 0), f"adb -s {serial} shell -T", tmp_path)


def test_a_device_that_goes_away(
    victim: StartVictim, client: adb_device.Device, serial: str, tmp_path: Path
) -> None:
    """The helper there is stuck, so that only the end of the connection can tell it."""
    target = victim("checker", 0)
    watched = Watched(target.pid, Helper(tmp_path))
    stuck = tmp_path / "stuck"
    watched.helper.write_stalling(stuck, call=40)
    with subprocess.Popen(
        [sys.executable, "-m", "reachscan", "scan", "--on", f"adb:{serial}", str(target.pid)],
        cwd=REPOSITORY,
        env={**os.environ, "REACHSCAN_HELPER": str(stuck)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert watched.helper.stalls(process)
        client.adb("disconnect", serial)
        assert process.wait() == FAILED
        assert process.stderr is not None
        assert f"the connection to adb:{serial} was lost" in process.stderr.read()
    assert_nothing_left()
    watched.wait_until_free()
    watched.assert_unharmed()
    assert_sound(last_words(target), cut_short=1)


def test_the_processes_of_an_app(victim: StartVictim, serial: str) -> None:
    start = f"exec:adb -s {serial} shell -T run-as"
    with public_copy(build("leaky_sessions", ["-g"])) as program:
        app = victim("leaky_sessions", command=as_user(NOBODY, str(program), "once"))
        report = asked("scan", "--on", f"{start} {PACKAGE}", app.pid)
        assert report["leaks"]["allocations"] == LEAKS
        app.quit()
    other = victim("leaky_sessions", "once")
    done = run_cli(["scan", "--on", f"{start} {PACKAGE}", other.pid])
    assert_refused(done, "not permitted to look into process")
    assert run_cli(["scan", "--on", f"{start} org.example.none", 1]).status == FAILED
    assert_nothing_left()
