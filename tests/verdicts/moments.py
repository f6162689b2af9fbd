"""Scans programs at moments that suit no scan, and counts what comes of it.

    python tests/verdicts/moments.py busy [--scans 500] [--method clone ...]
    python tests/verdicts/moments.py starts [--scans 100] [--method clone ...] [NAME ...]

It needs PYTHONPATH=tests/support. `busy` scans a program of one thread and one of eight that
allocate at full speed, and whose malloc gives memory back at once; each knows its own leaks.
`starts` stops programs at a random moment of their start, and looks for words that point to what is
called leaked. The test suite has short forms of both.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from idle_servers import postgres_programs
from programs import program, unprivileged
from scans import PATIENTLY, recording_of
from starts import MORE_STARTERS, ON_SCREEN, STARTERS, pointed_at, started, write_files
from verdicts import row, stage
from victims import GIVING_BACK, Truth, build, need, read_truth, running

from reachscan.errors import ReachscanError, StartingUpError, TimedOutError, UnstoppableError
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

METHODS = ("clone", "copy", "track")
EXACT, STARTING = "exact", "starting up"
TOO_SLOW = "out of time on this machine, and repeated"
DIGITS = re.compile(r"0x[0-9a-f]+|\d{3,}")


def verdict(scan: Callable[..., str], *arguments: object) -> str:
    """Return what came of a scan: it is exact, wrong, refused, or the program is starting."""
    try:
        return scan(*arguments)
    except StartingUpError:
        return STARTING
    except ReachscanError as refusal:
        return f"refused: {DIGITS.sub('N', ' '.join(str(refusal).split()))}"


def report(what: str, method: str, counts: Counter[str]) -> None:
    others = [f"{count} {outcome}" for outcome, count in counts.most_common() if outcome != EXACT]
    scans = sum(counts.values()) - counts[TOO_SLOW]
    row(what, method, scans, counts[EXACT], "; ".join(others) or "none")


def busy_scan(pid: int, method: str, truth: Truth) -> str:
    leaks = recording_of(pid, "--method", method, *PATIENTLY).leaks
    expected = truth[:, 0]
    missed = np.setdiff1d(expected, leaks.address)
    wrong = np.setdiff1d(leaks.address[leaks.reason == model.DEFINITE], expected)
    if len(wrong) or len(missed):
        return f"wrong: live {list(map(hex, wrong[:9]))}, missed {list(map(hex, missed[:9]))}"
    return EXACT


def busy(methods: list[str], scans: int, folder: Path) -> None:
    for threads in (0, 8):
        path = folder / f"truth-{threads}"
        command = [str(build("busy_threads")), str(path), str(threads), "500"]
        with running(command, GIVING_BACK) as victim:
            truth = read_truth(path)
            for method in methods:
                what = (busy_scan, victim.pid, method, truth)
                counts = Counter(verdict(*what) for _ in range(scans))
                report(f"{threads or 1} busy threads", method, counts)


def start_scan(pid: int, method: str) -> str:
    # What is stopped inside its loader would be waited for in vain.
    try:
        leaks = recording_of(pid, "--method", method, "--timeout", 1, *PATIENTLY).leaks
    except (TimedOutError, UnstoppableError):
        return TOO_SLOW
    sizes = dict(zip_equal(leaks.address.tolist(), leaks.size.tolist()))
    definite = leaks.address[leaks.reason == model.DEFINITE].tolist()
    wrong = pointed_at(pid, sizes, definite)
    return f"wrong: {wrong}" if wrong else EXACT


def starts(name: str, methods: list[str], scans: int, where: Path, screen: str) -> None:
    environment = {**os.environ, "HOME": str(where), "DISPLAY": screen}
    for method in methods:
        counts: Counter[str] = Counter()
        while sum(counts.values()) - counts[TOO_SLOW] < scans:
            try:
                with started(name, where, environment) as process:
                    counts[verdict(start_scan, process.pid, method)] += 1
            except AssertionError as reason:
                counts[f"not done: {' '.join(str(reason).split())[:200]}"] += 1
        report(Path(name).name, method, counts)


def make_database(folder: Path) -> None:
    make = [str(postgres_programs() / "initdb"), "-D", str(folder / "data"), "--no-sync"]
    subprocess.run(make, check=True, capture_output=True, cwd=folder, **unprivileged())


@contextmanager
def screen_for(name: str) -> Iterator[str]:
    if name not in ON_SCREEN:
        yield ""
        return
    command = [need("Xvfb", "xvfb"), "-displayfd", "1", "-ac", "-noreset"]
    with program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        yield f":{int(server.stdout.readline())}"


def all_starts(names: list[str], methods: list[str], scans: int) -> None:
    with stage() as where:
        write_files(where.folder)
        for name in names:
            try:
                if name == "postgres":
                    make_database(where.folder)
                with screen_for(name) as screen:
                    starts(name, methods, scans, where.folder, screen)
            except pytest.skip.Exception as reason:
                row(name, f"not done: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("moments", choices=("busy", "starts"))
    parser.add_argument("--scans", type=int, help="500 of each busy program, 100 of each start")
    parser.add_argument("--method", action="append", help="clone, copy and track, unless said")
    everything = {**STARTERS, **MORE_STARTERS}
    parser.add_argument("names", nargs="*", choices=[*everything, []], metavar="NAME")
    arguments = parser.parse_intermixed_args()
    methods = arguments.method or list(METHODS)
    row("program", "method", "scans", "exact", "others")
    row(*["---"] * 5)
    if arguments.moments == "busy":
        with tempfile.TemporaryDirectory() as folder:
            busy(methods, arguments.scans or 500, Path(folder))
    else:
        all_starts(arguments.names or list(everything), methods, arguments.scans or 100)


if __name__ == "__main__":
    main()
