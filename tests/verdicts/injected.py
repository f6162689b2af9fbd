"""Loses blocks in real programs, and looks which are found.

    python tests/verdicts/injected.py [NAME ...]


A library that is preloaded (`fixtures/programs/injected.c`) loses blocks of 200 kinds in the
middle of each program's work and writes down where they are. For each that a scan misses, it says
what points there: words are looked for by `evidence.py`, which shares nothing with reachscan.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence

import evidence
import numpy as np
import pytest
from injected_programs import PROGRAMS
from scans import list_heap, scan
from verdicts import give_up, stage
from victims import Truth, build, read_truth

METHODS = ("clone", "copy", "track")
FLAGS = ("-shared", "-fPIC", "-fno-builtin", "-fno-tree-loop-distribute-patterns")
MOST_CAUSES = 6

Blocks = Sequence[tuple[int, int]]


class Holders:
    """What holds the blocks that were missed."""

    def __init__(self, pid: int, missed: Blocks, lost: set[int]) -> None:
        self._missed, self._lost = missed, lost
        self._heap = list_heap(pid)
        self._found = evidence.look_for(pid, missed)

    def causes(self) -> Counter[str]:
        """Count the words outside of what is lost by what they are in."""
        counts: Counter[str] = Counter()
        for number in range(len(self._missed)):
            kinds = {self._cause(hit, number) for hit in self._found.memory[number]} - {""}
            if self._found.registers[number]:
                kinds.add("a register")
            counts[" and ".join(sorted(kinds)) or "another missed block"] += 1
        return counts

    def _cause(self, hit: evidence.Hit, number: int) -> str:
        size = self._missed[number][1]
        target = f"{'start' if hit.offset == 0 else 'middle'} of {size}"
        row = int(np.searchsorted(self._heap[:, 0], np.uint64(hit.address), side="right")) - 1
        start, length = (int(value) for value in self._heap[row][:2]) if row >= 0 else (0, 0)
        if not start <= hit.address < start + length:
            mapping = self._found.mapping_of(hit.address)
            if mapping is None or mapping.path == "[heap]" or self._found.is_dead(hit.address):
                return ""  # what is free, and dead stacks
            return f"{mapping.path or 'anonymous memory'} -> {target}"
        if start in self._lost:
            return ""
        return f"{length} bytes +{hit.address - start:#x} -> {target}"


def rows_of(name: str, pid: int, truth: Truth) -> list[str]:
    """Scan by each method; return a row of the table for each, and one for each cause."""
    rows = []
    lost = set(map(int, truth[:, 0]))
    for method in METHODS:
        report = scan(pid, "--all", "--method", method)
        found = {int(b["address"], 16): b for b in report["allocations"]}
        counts = Counter(found[a]["confidence"] if a in found else "missed" for a in lost)
        share = 100 * (1 - counts["missed"] / len(lost))
        reasons = Counter(report["groups"][found[a]["group"]]["reason"] for a in set(found) - lost)
        others = f"{reasons['stale-word']} of {report['heap']['allocations'] - len(lost)}"
        numbers = (len(lost), counts["definite"], counts["possible"], counts["missed"])
        rows.append(" | ".join(map(str, (name, method, *numbers, f"{share:.2f} %", others))))
        missed = [(int(a), int(s)) for a, s, _ in truth if int(a) not in found]
        if missed and method == METHODS[0]:
            causes = Holders(pid, missed, lost | set(found)).causes().most_common(MOST_CAUSES)
            rows += [f"| | {count}: {cause[:200]}" for cause, count in causes]
    return rows


def injected(name: str) -> None:
    library = build("injected", FLAGS)
    library.parent.chmod(0o755)
    prefix = ("env", f"LD_PRELOAD={library}", "REACHSCAN_INJECTED={folder}")
    with stage(prefix) as where, PROGRAMS[name](where) as processes:
        for what, pid in processes.items():
            path = where.folder / f"{pid}.truth"
            if not path.exists():
                continue  # it was forked without doing anything
            for row in rows_of(what, pid, read_truth(path)):
                print("|", row, "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=240, help="what each of them may take")
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []], metavar="NAME")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    signal.signal(signal.SIGALRM, give_up)
    print(
        "| program | method | injected | definite | possible | missed | found | others in doubt |",
        flush=True,
    )
    failures = (pytest.skip.Exception, AssertionError, OSError, subprocess.SubprocessError)
    for name in arguments.names or PROGRAMS:
        signal.alarm(arguments.seconds)
        try:
            injected(name)
        except failures as reason:
            print(f"| {name} | not done: {str(reason)[:300]} |", flush=True)


if __name__ == "__main__":
    main()
