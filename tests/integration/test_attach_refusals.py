"""What `attach`, `detach` and `where` refuse: status 3, one sentence, an untouched process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attached import Surroundings, assert_served
from conftest import StartVictim
from scans import FAILED, run_cli
from victims import build, traced


def refuse(command: str, pid: int, why: str) -> None:
    done = run_cli([command, pid])
    assert (done.status, done.out) == (FAILED, "")
    assert why in done.talk
    assert len(done.talk.splitlines()) == 1


def test_refusals(victim: StartVictim) -> None:
    server = victim("serving", 1, 0)
    stripped = victim("serving", 1, 0, command=[str(build("serving", ("-static", "-s")))])
    surroundings = Surroundings(server.pid)

    refuse("detach", server.pid, "is not being recorded")
    refuse("attach", stripped.pid, "is linked statically and has no symbols")
    filtered = victim("filtered", "errno")
    refuse("attach", filtered.pid, "seccomp filter")
    with traced(server.pid):
        refuse("attach", server.pid, "is already traced by process")
    surroundings.assert_same()
    assert run_cli(["attach", server.pid]).status == 0
    refuse("attach", server.pid, "is already being recorded, by reachscan attach")
    assert run_cli(["detach", server.pid]).status == 0
    surroundings.assert_same()


def test_a_limit_of_memory(victim: StartVictim) -> None:
    limited = ["prlimit", f"--as={256 << 20}", str(build("serving"))]
    server = victim("serving", 1, 0, command=limited)
    surroundings = Surroundings(server.pid)
    done = run_cli(["attach", server.pid, "--memory", "1G"])
    assert done.status == FAILED
    assert "cannot allocate memory for the recorder" in done.talk
    assert done.talk.endswith("; give it less with --memory\n")
    surroundings.assert_same()
    assert_served(server)


def test_a_32_bit_program(victim: StartVictim) -> None:
    try:
        program = build("other_word_size", ["-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie"])
        target = victim("other_word_size", command=[str(program)])
    except AssertionError as error:
        pytest.skip(f"the compiler makes no 32-bit programs: {error}")
    except OSError as error:
        pytest.skip(f"this kernel runs no 32-bit programs: {error}")
    refuse("attach", target.pid, "is a 32-bit program, which the recorder is not made for")


def test_what_another_command_records(tmp_path: Path) -> None:
    shell = ["sh", "-c", "echo $$; read line"]
    run = [sys.executable, "-m", "reachscan", "run", "-o", str(tmp_path / "report"), "--", *shell]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout
        pid = int(running.stdout.readline())
        refuse("attach", pid, "is already being recorded, by reachscan run")
        refuse("detach", pid, "is recorded by reachscan run, not by reachscan attach")
        running.communicate(b"\n")
    assert running.returncode == 0
