"""Compiles the fixture programs, starts them as targets and checks them at the end."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import glibc_suites
import numpy as np
import pytest
from numpy.typing import NDArray
from provisions import provide

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "fixtures" / "programs"
BUILD = REPOSITORY / "build" / "fixtures"
DEADLINE = 300.0

# A call in a loop has one return address: GCC 13 and later unroll small loops by themselves.
BOTH_FLAGS = ("-O2", "-fno-unroll-loops", "-Wall", "-Wextra", "-Werror")
C_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-g", "-pthread", *BOTH_FLAGS)
CXX_FLAGS = ("-std=c++17", "-s", *BOTH_FLAGS)

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207

GIVING_BACK = {
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_TOP_PAD_": "0",
    "MALLOC_MMAP_THRESHOLD_": "65536",
}
"""With these, malloc calls the kernel often: brk, mmap, mremap, munmap, madvise."""

KIND_DIRECT, KIND_INDIRECT, KIND_FIRST_RING = 0, 1, 2

Truth = NDArray[np.uint64]
"""Rows of address, usable size, kind, sorted by address."""


def build(name: str, flags: Sequence[str] = (), compiler: str | None = None) -> Path:
    """Return the compiled fixture program; compiles it unless these very sources were before."""
    source = next(PROGRAMS.glob(f"{name}.c*"))
    plain_c = source.suffix == ".c"
    if compiler is None:
        compiler = os.environ.get("CC", "gcc") if plain_c else os.environ.get("CXX", "g++")
    # Nobody wants debug information only to have it stripped.
    usual = [f for f in (C_FLAGS if plain_c else CXX_FLAGS) if f != "-s" or "-g" not in flags]
    command = [*compiler.split(), *usual, f"-I{REPOSITORY / 'native'}", str(source), *flags]
    digest = hashlib.sha256(repr(command).encode())
    linked = [Path(flag) for flag in flags if flag.endswith(".a") and not flag.startswith("-")]
    for path in [*sorted(PROGRAMS.iterdir()), *linked]:
        digest.update(path.read_bytes())
    program = BUILD / digest.hexdigest()[:16] / name
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [*command, "-o", str(unfinished)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{name} does not compile:\n{done.stderr}"
        unfinished.rename(program)
    return program


def glibc_of(suite: str) -> glibc_suites.Glibc:
    """Return another C library, or skip the test with the reason."""
    try:
        return glibc_suites.fetch(suite)
    except glibc_suites.UnavailableError as reason:
        pytest.skip(str(reason))


def command_on(suite: str, name: str, libraries: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a fixture program on the C library of a Debian suite.

    The program is linked against the oldest of them, so the same file runs on all.
    """
    root = glibc_of(glibc_suites.BUILD_SUITE).root
    folders = [root / part for part in glibc_suites.LIBRARY_FOLDERS]
    flags = [f"--sysroot={root}", f"-B{folders[1]}", *(f"-L{folder}" for folder in folders)]
    return [*glibc_of(suite).command, str(build(name, [*flags, *libraries]))]


class Victim:
    """A running fixture program."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            # A group whose parent is in our session: to orphaned ones, as tests may run in, the
            # kernel delivers no SIGTSTP.
            preexec_fn=os.setpgrp,
        )
        self.pid = self.process.pid
        self._pending = b""
        self.ready: dict[str, Any] = {}

    def wait_ready(self) -> None:
        """Wait for its ready line and, unless the line says `busy`, until its main thread rests.

        A thread that still runs keeps what it used last in registers and on its stack.
        """
        self.ready = json.loads(self.read_line())
        assert self.ready["ready"] is True
        if self.ready.get("busy"):
            return
        wait_until(lambda: main_thread_rests(self.pid), f"the main thread of {self.pid} rests")

    def read_line(self, seconds: float = DEADLINE) -> str:
        """Return the next line of output, waiting for it no longer than the deadline."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._pending:
            left = end - time.monotonic()
            readable, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            assert readable, f"{self.command[0]} said nothing for {seconds} s"
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            assert piece, f"{self.command} ended with status {self.process.wait(seconds)}"
            self._pending += piece
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def quit(self) -> str:
        """Let it verify itself; returns what it still had to say."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        rest = self._pending + self.process.communicate(timeout=DEADLINE)[0]
        status = self.process.returncode
        assert status == 0, f"{self.command} found itself damaged: status {status}, {rest!r}"
        return rest.decode()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[Victim]:
    """Start a fixture program; if the test went well, it has verified itself at the end."""
    victim = Victim(command, environment)
    try:
        victim.wait_ready()
        yield victim
        if victim.process.poll() is None:
            victim.quit()
        assert victim.process.returncode == 0
    finally:
        victim.kill()


def read_truth(path: Path) -> Truth:
    rows: Truth = np.fromfile(path, dtype="<u8").reshape(-1, 3)
    return rows[np.argsort(rows[:, 0])]


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Wait for something that sends no event of its own; looks again every few milliseconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s until {what}"
        select.select([], [], [], 0.005)


def main_thread_rests(pid: int) -> bool:
    """Return whether the main thread of a process sleeps in a call, is stopped or has ended."""
    process = Path(f"/proc/{pid}")
    state = scheduler_state(process)
    if state != "D":
        return state != "R"
    # It may wait for a page of a file, outside of all calls, or be in vfork().
    return not (process / "syscall").read_text().startswith(("-1", "running"))


def scheduler_state(task: Path) -> str:
    """Return the scheduler's letter for a thread; `task` is its folder in /proc."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def thread_states(pid: int) -> list[str]:
    """Return the scheduler's letter for each thread of a process; none if it has ended."""
    states = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # it may end just now
                states.append(scheduler_state(task))
    return states


def wait_blocked(pid: int) -> None:
    wait_until(lambda: set(thread_states(pid)) == {"S"}, f"every thread of {pid} sleeps")


def need(program: str, package: str) -> str:
    """Return the path of a program, or skip the test and say what to install."""
    path = provide(program, package)
    if path is None:
        pytest.skip(f"{program} is not installed (Debian package {package})")
    return path


@contextmanager
def traced(pid: int) -> Iterator[None]:
    """Be the tracer of a process, so that nobody else can be."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0
    try:
        yield
    finally:
        libc.ptrace(PTRACE_INTERRUPT, pid, None, None)
        os.waitpid(pid, 0)
        libc.ptrace(PTRACE_DETACH, pid, None, None)
