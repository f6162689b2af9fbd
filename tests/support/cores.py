"""Writes core files of fixture programs, with gdb and by crashing them."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from scans import PATIENCE
from victims import DEADLINE, Victim, build, need, wait_blocked

PATTERN = Path("/proc/sys/kernel/core_pattern")
USUAL_FILTER = 0x33
"""What the kernel dumps usually: private memory, and the first page of ELF files."""

AVX_512 = ("AVX_Fast_Unaligned_Load", "AVX512F", "AVX512VL", "AVX512F_Usable")
NARROW = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=" + ",".join(f"-{feature}" for feature in AVX_512)}
"""What copies leave behind in registers of AVX-512, gdb 13 loses on processors of AMD."""


@contextmanager
def doomed(
    name: str, *arguments: object, folder: Path, command: Sequence[str] = (), waits: bool = True
) -> Iterator[Victim]:
    """Start a fixture program that may crash; its core file goes to `folder`.

    When it is ready, it waits with all of its threads, unless it never `waits`.
    """
    program = command or [str(build(name))]
    words = ["env", f"--chdir={folder}", *program, *map(str, arguments)]
    victim = Victim(words, NARROW)
    try:
        victim.wait_ready()
        if waits:
            wait_blocked(victim.pid)
        yield victim
    finally:
        victim.kill()


def gcore(victim: Victim, folder: Path) -> Path:
    """Return a core file of a process that runs on."""
    command = [need("gcore", "gdb"), "-o", str(folder / "gcore"), str(victim.pid)]
    subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    return folder / f"gcore.{victim.pid}"


def crash(victim: Victim, folder: Path, what: int = USUAL_FILTER) -> Path:
    """Return the core file that the kernel writes when a process is aborted.

    Args:
        victim: a `doomed` one.
        folder: that it was started in.
        what: which memory is dumped (core(5), coredump_filter).
    """
    allow_core(victim, what)
    victim.process.send_signal(signal.SIGABRT)
    return dumped(victim, folder)


def allow_core(victim: Victim, what: int = USUAL_FILTER) -> None:
    """Have the kernel write a core file of a `doomed` program when it crashes, or skip the test."""
    pattern = PATTERN.read_text().strip()
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip(f"the kernel puts core files elsewhere ({PATTERN}: {pattern})")
    Path(f"/proc/{victim.pid}/coredump_filter").write_text(hex(what))
    hard = resource.prlimit(victim.pid, resource.RLIMIT_CORE)[1]
    if hard != resource.RLIM_INFINITY:
        pytest.skip("core files are limited here (RLIMIT_CORE)")
    resource.prlimit(victim.pid, resource.RLIMIT_CORE, (hard, hard))


def dumped(victim: Victim, folder: Path) -> Path:
    """Return the core file of a program that crashes; `folder` is the one it was started in."""
    victim.process.wait(DEADLINE)
    (core,) = folder.glob("core*")
    return core


WRITERS = {"gcore": gcore, "kernel": crash}
