"""A program that is starting is scanned exactly, and one whose loader is at work is waited for.

Programs that people run are stopped at a random moment of their start, scanned, and searched for
words that point to what is called leaked. REACHSCAN_STARTS says how often each is started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import Process, program
from provisions import provide_all
from scans import FAILED, PATIENCE, PATIENTLY, run_cli, scan
from starts import ON_SCREEN, STARTERS, begun, is_stopped, pointed_at, started, write_files
from test_jemalloc import LIBRARY as JEMALLOC
from victims import REPOSITORY, build, need, wait_until

STARTS = int(os.environ.get("REACHSCAN_STARTS", "2"))
LOADING = "the program is still loading its libraries"


@pytest.fixture(scope="module")
def screen() -> Iterator[str]:
    """Start an X server that shows nothing; yields its name."""
    command = [need("Xvfb", "xvfb"), "-displayfd", "1", "-ac", "-noreset"]
    with program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield f":{int(server.stdout.readline())}"


@pytest.mark.parametrize("command", STARTERS)
def test_random_moments(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    write_files(tmp_path)
    environment = {**os.environ, "HOME": str(tmp_path)}
    if command in ON_SCREEN:
        environment["DISPLAY"] = request.getfixturevalue("screen")
    for number in range(STARTS):
        with started(command, tmp_path, environment) as process:
            report = scan_when_loaded(process)
            if is_stopped(process):
                wrong = wrongly_leaked(process.pid, report)
                assert not wrong, f"start {number}: {wrong}"
            else:
                scan(process.pid)


def scan_when_loaded(process: Process) -> dict[str, Any]:
    """Scan a stopped program. If its loader is waited for, let it go on."""
    options = ["--json", "--all", "--limit", "0", "--verbose", *PATIENTLY]
    command = [sys.executable, "-m", "reachscan", "scan", str(process.pid), *options]
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(
            command, cwd=REPOSITORY, stdout=out, stderr=subprocess.PIPE, text=True
        ) as scanner,
    ):
        assert scanner.stderr is not None
        talk = ""
        for line in scanner.stderr:
            talk += line
            if line == f"{LOADING}: waiting for its end\n":
                process.send_signal(signal.SIGCONT)
        assert scanner.wait(PATIENCE) in (0, 1), talk
        out.seek(0)
        report: dict[str, Any] = json.load(out)
        return report


def wrongly_leaked(pid: int, report: dict[str, Any]) -> list[str]:
    blocks = report["allocations"]
    sizes = {int(b["address"], 16): b["size"] for b in blocks}
    definite = [int(b["address"], 16) for b in blocks if b["confidence"] == "definite"]
    return pointed_at(pid, sizes, definite)


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_allocator_that_is_being_set_up(method: str) -> None:
    """It is not to be recognised before its first call has returned."""
    provide_all("libjemalloc2")
    preloaded = [build("set_up_when_stopped", ["-shared", "-fPIC"]), JEMALLOC]
    environment = {**os.environ, "LD_PRELOAD": " ".join(map(str, preloaded))}
    with program([sys.executable], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        report = scan(process.pid, "--method", method)
    assert "jemalloc" in {name.split()[0] for name in report["target"]["allocators"]}
    assert report["leaks"]["allocations"] == 0


def test_library_that_is_initialised_for_long() -> None:
    """So jemalloc and libstdc++, which asks that for memory, come later."""
    provide_all("libjemalloc2")
    slow = build("slow_constructor", ["-shared", "-fPIC"])
    libraries = ["-Wl,--no-as-needed", "-lstdc++", JEMALLOC, str(slow)]
    with program([build("never_mallocs", libraries)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        done = run_cli(["scan", process.pid, "--timeout", 2])
    assert done.status == FAILED, done.out
    assert LOADING in " ".join(done.talk.split()), done.talk


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_loader_that_does_not_go_on(method: str) -> None:
    with begun([build("never_mallocs")]) as process:
        done = run_cli(["scan", process.pid, "--method", method, "--timeout", 2])
    assert done.status == FAILED, done.out
    expected = f"reachscan: {LOADING}; scan it again when it has started"
    assert " ".join(done.talk.split()) == expected


def test_loader_is_waited_for() -> None:
    with begun([build("never_mallocs")]) as process:
        command = [sys.executable, "-m", "reachscan", str(process.pid), "--method", "clone", "-v"]
        with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE) as scanner:
            assert scanner.stderr is not None
            line = next(line for line in scanner.stderr if LOADING.encode() in line)
            assert line == f"{LOADING}: waiting for its end\n".encode()
            process.send_signal(signal.SIGCONT)
            scanner.communicate(timeout=PATIENCE)
        assert scanner.returncode == 0


def test_loader_that_waits_for_a_library(tmp_path: Path) -> None:
    """The C library is there, but another one is a pipe."""
    hollow = build("hollow", ["-Wl,--no-as-needed", "-lc", "-lm"])
    os.mkfifo(tmp_path / "libm.so.6")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    with subprocess.Popen([str(hollow)], env=environment) as process:
        try:
            maps = Path(f"/proc/{process.pid}/maps")
            wait_until(lambda: "libc.so.6" in maps.read_text(), "the C library is mapped")
            done = run_cli(["scan", process.pid, "--timeout", 1])
        finally:
            process.kill()
    assert done.status == FAILED, done.out
    assert LOADING in " ".join(done.talk.split())
