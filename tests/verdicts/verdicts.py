"""Scans programs that wait, and checks each verdict: python tests/verdicts/verdicts.py [NAME ...].

It needs PYTHONPATH=tests/support. Every definite leak is searched for in all memory and registers
of the process by `disguises.py`, which shares nothing with reachscan: any word that could mean it
makes it a suspect.
With --install, what a program needs is installed first (packages of Debian, if run by root, and of
PyPI); programs that cannot be had are named. With --valgrind the same program does the same work
once more, under memcheck, which then searches at the same moment. Words that point into what it
calls lost are counted by why it passes over them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import disguises
import evidence
import memcheck
import numpy as np
import provisions
import pytest
from desktop_programs import DESKTOP
from idle_programs import COMMANDS, Stage
from idle_servers import SERVERS
from language_programs import LANGUAGES
from loaded_cli import loaded_cli
from programs import children
from python_stacks import STACKS
from scans import FAILED, list_heap, run_cli
from science_stacks import SCIENCE
from service_programs import SERVICES
from small_desktop_programs import SMALL_DESKTOP
from terminal_programs import TERMINALS
from tool_programs import TOOLS
from web_programs import WEB_SERVERS

SCENES = {
    **COMMANDS,
    **SERVERS,
    **LANGUAGES,
    **STACKS,
    **SCIENCE,
    **TERMINALS,
    **WEB_SERVERS,
    **SERVICES,
    **TOOLS,
    **DESKTOP,
    **SMALL_DESKTOP,
}
COLUMNS = (
    *("program", "method", "blocks", "definite", "possible", "suspects", "words that mean them"),
    *("blocks of private memory", "pause", "warnings"),
)
BEFORE_VALGRIND = {
    # It wants to lower its limit of files, which valgrind refuses. This is its limit already: 64
    # connections, and 12 files for valgrind.
    "memcached": ("prlimit", "--nofile=76"),
}
PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def stage(prefix: tuple[str, ...] = ()) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="reachscan-"))
    folder.chmod(0o777)
    loaded_cli()  # it serves one stage after the other
    own = children(os.getpid())
    try:
        yield Stage(folder, tuple(word.format(folder=folder) for word in prefix))
    finally:
        end_left_over(own)
        shutil.rmtree(folder, ignore_errors=True)


def end_left_over(own: Sequence[int]) -> None:
    """End what a program started and did not end: such processes become ours."""
    while left := set(children(os.getpid())).difference(own):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def meaning_words(pid: int, blocks: list[tuple[int, int]]) -> tuple[int, str]:
    """Return how many of the blocks are suspect, and what words mean them."""
    if not blocks:
        return 0, ""
    heap = list_heap(pid)
    live = np.stack([heap[:, 0], heap[:, 0] + heap[:, 1]], axis=1)
    found = disguises.look_for(pid, blocks, live)
    held = evidence.held_by_kernel(pid)
    by_kernel = {i for i, (a, size) in enumerate(blocks) if any(a <= v < a + size for v in held)}
    words = [*disguises.places(found, evidence.mappings_of(pid), live)]
    words += [f"{len(by_kernel)} held by the kernel"] if by_kernel else []
    return len(found.suspects() | by_kernel), "; ".join(words) or "none"


def covered(pid: int, heap_bytes: int) -> str:
    """Return which part of its own memory a process has in blocks."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    (anonymous,) = (
        int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Anonymous:")
    )
    return f"{heap_bytes / 1024 / anonymous:.0%}"


def row(*columns: object) -> None:
    print("|", " | ".join(str(column).replace("|", "/") for column in columns), "|", flush=True)


def scanned(name: str, methods: list[str]) -> None:
    with stage() as where, SCENES[name](where) as processes:
        for what, pid in processes.items():
            for method in methods:
                scanned_by(what if what.startswith(name) else f"{name}: {what}", pid, method)


def scanned_by(what: str, pid: int, method: str) -> None:
    done = run_cli(["scan", pid, "--json", "--all", "--method", method])
    if done.status == FAILED:
        row(what, method, f"refused: {' '.join(done.talk.split())}")
        return
    assert done.status in (0, 1), f"status {done.status}: {done.talk}"
    report = json.loads(done.out)
    definite = sorted(
        (int(block["address"], 16), int(block["size"]))
        for block in report["allocations"]
        if block["confidence"] == "definite"
    )
    suspects, words = meaning_words(pid, definite)
    warnings = " ".join(warning["code"] for warning in report["warnings"])
    heap, pause = report["heap"], report["snapshot"]["pause_us"] / 1000
    counts = (len(definite), report["leaks"]["possible_allocations"], suspects, words)
    part = covered(pid, heap["bytes"])
    row(what, method, heap["allocations"], *counts, part, f"{pause:.1f} ms", warnings)


def checked(name: str) -> None:
    prefix = (*BEFORE_VALGRIND.get(name, ()), *memcheck.COMMAND)
    with stage(prefix) as where, SCENES[name](where) as processes:
        for what, pid in processes.items():
            client = memcheck.Client(pid, where.folder)
            said = client.search()
            log = Path(tempfile.gettempdir()) / f"verdict-{what.replace(' ', '-')}.txt"
            log.write_text(said)
            lost, counts = memcheck.lost_blocks(said), memcheck.counts(said)
            assert len(lost) == counts["definitely lost"], f"it lists {len(lost)} lost: see {log}"
            words = client.passed_over(lost)
            columns = [f"{count} {kind}" for kind, count in counts.items()]
            columns.append(", ".join(f"{count}: {kind}" for kind, count in words.items()))
            row(what, "valgrind", *columns, log)


def give_up(number: int, frame: object) -> None:
    raise AssertionError("it took too long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--valgrind", action="store_true", help="run them under valgrind instead")
    parser.add_argument("--install", action="store_true", help="install what they need")
    parser.add_argument("--method", action="append", help="clone and copy, unless said otherwise")
    parser.add_argument("--seconds", type=int, default=240, help="what each of them may take")
    parser.add_argument("names", nargs="*", choices=[*SCENES, []], metavar="NAME")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    if arguments.install:
        os.environ[provisions.ALLOWED] = "1"
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGALRM, give_up)
    failures = (pytest.skip.Exception, AssertionError, OSError, subprocess.SubprocessError)
    if not arguments.valgrind:
        row(*COLUMNS)
        row(*["---"] * len(COLUMNS))
    for name in arguments.names or SCENES:
        signal.alarm(arguments.seconds)
        try:
            if arguments.valgrind:
                checked(name)
            else:
                scanned(name, arguments.method or ["clone", "copy"])
        except failures as reason:
            said = " ".join(str(reason).split()) or type(reason).__name__
            row(name, f"not done: {said[:300]}")
        finally:
            signal.alarm(0)


if __name__ == "__main__":
    main()
