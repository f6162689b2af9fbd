"""A program that is starting is scanned exactly, and one whose loader is at work is waited for.

Programs that people run are stopped at a random moment of their start, scanned, and searched for
words that point to what is called leaked. REACHSCAN_STARTS says how often each is started.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import disguises
import numpy as np
import pytest
from programs import Process, program
from scans import FAILED, PATIENCE, list_heap, run_cli, scan
from victims import PTRACE_DETACH, REPOSITORY, build, need, thread_states, wait_until

STARTS = int(os.environ.get("REACHSCAN_STARTS", "2"))
PTRACE_TRACEME = 0
LOADING = "the program is still loading its libraries"
WAIT = "class Wait { public static void main(String[] a) throws Exception { System.in.read(); } }"

PROGRAMS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "/usr/bin/python3": ("python3", ("-c", "import decimal, ssl, sqlite3; input()"), 0.4),
    "perl": ("perl", ("-MPOSIX", "-MEncode", "-MIO::Socket", "-e", "<STDIN>"), 0.1),
    "node": ("nodejs", ("-e", "process.stdin.resume()"), 0.3),
    "ruby": ("ruby", ("-rjson", "-e", "gets"), 0.2),
    "java": ("default-jdk-headless", ("Wait.java",), 1.0),
    "git": ("git", ("-C", str(REPOSITORY), "cat-file", "--batch"), 0.02),
    "gdb": ("gdb", ("-q", "-nx", "/bin/sh"), 0.3),
    "vim": ("vim", ("-n", "-es", "/etc/passwd"), 0.1),
    "sqlite3": ("sqlite3", (), 0.02),
    "gnome-calculator": ("gnome-calculator", (), 1.5),
}
"""By command: the Debian package, the arguments, and the seconds in which most of it is over."""


@contextmanager
def begun(command: Sequence[object], **options: Any) -> Iterator[Process]:
    """Start a program, stopped at its first instruction."""
    libc = ctypes.CDLL(None)
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: libc.ptrace(PTRACE_TRACEME, 0, None, None),
        **options,
    ) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            stop = ctypes.c_void_p(signal.SIGSTOP)
            assert libc.ptrace(PTRACE_DETACH, process.pid, None, stop) == 0
            wait_stopped(process)
            yield process
        finally:
            process.kill()


def wait_stopped(process: Process) -> None:
    def stopped() -> bool:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        return set(thread_states(process.pid)) == {"T"}

    wait_until(stopped, "it is stopped")


def let_run(process: Process, seconds: float) -> None:
    """Let it go on for so long, or to its end if that comes first."""
    end = os.pidfd_open(process.pid)
    try:
        process.send_signal(signal.SIGCONT)
        select.select([end], [], [], seconds)
    finally:
        os.close(end)
    process.send_signal(signal.SIGSTOP)
    wait_stopped(process)


@pytest.fixture(scope="module")
def screen() -> Iterator[str]:
    """Start an X server that shows nothing; yields its name."""
    command = [need("Xvfb", "xvfb"), "-displayfd", "1", "-ac", "-noreset"]
    with program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield f":{int(server.stdout.readline())}"


def pointed_at(pid: int, report: dict[str, Any]) -> list[str]:
    """Return the definite leaks that an aligned word in use or a register points to."""
    sizes = {int(b["address"], 16): b["size"] for b in report["allocations"]}
    definite = sorted(
        (int(b["address"], 16), b["size"])
        for b in report["allocations"]
        if b["confidence"] == "definite"
    )
    if not definite:
        return []
    heap = list_heap(pid)
    live = np.stack([heap[:, 0], heap[:, 0] + heap[:, 1]], axis=1)
    pointers = disguises.look_for(pid, definite, live).hits.get("pointer", {})

    def counts(at: int) -> bool:
        return at % 8 == 0 and not any(a <= at < a + size for a, size in sizes.items())

    return [
        f"{definite[number][0]:#x}: {[hex(at) for at in hits if counts(at)]}"
        for number, hits in pointers.items()
        if any(map(counts, hits))
    ]


@pytest.mark.parametrize("command", PROGRAMS)
def test_random_moments(command: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    package, arguments, seconds = PROGRAMS[command]
    need(command, package)
    (tmp_path / "Wait.java").write_text(WAIT)
    environment = {**os.environ, "HOME": str(tmp_path)}
    if command == "gnome-calculator":
        environment["DISPLAY"] = request.getfixturevalue("screen")
    for number in range(STARTS):
        with begun([command, *arguments], cwd=tmp_path, env=environment) as process:
            # Half of them within the first hundredth.
            let_run(process, seconds * random.random() ** 7)
            done = run_cli(["scan", process.pid, "--json", "--all", "--limit", 0, "--timeout", 2])
            if done.status == FAILED:
                assert f"reachscan: {LOADING}" in " ".join(done.talk.split()), done.talk
                process.send_signal(signal.SIGCONT)
                scan(process.pid)
            else:
                assert done.status in (0, 1), done.talk
                wrong = pointed_at(process.pid, json.loads(done.out))
                assert not wrong, f"start {number}: {wrong}"


def test_loader_that_does_not_go_on() -> None:
    with begun([build("never_mallocs")]) as process:
        done = run_cli(["scan", process.pid, "--method", "clone", "--timeout", 1])
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
