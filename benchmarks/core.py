"""How long does the scan of a core file take, and how much memory, compared with chap?

    python benchmarks/core.py [--blocks N,N] [--runs N] [--shape SHAPE] [--chap PROGRAM]

A program with so many blocks is dumped by gcore. Times are those of the whole command, from its
start to its end. Memory is the largest resident set of any process that took part, in relation to
the size of the core file. Both alternate, so that they see the same machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from measure import HERE, PATIENCE, command_line, heading, ratio, row, target

QUESTION = b"count leaked\n"


class Measured:
    """What the runs of one command took."""

    def __init__(self, name: str, command: Sequence[str], asked: bytes = b"") -> None:
        self.name = name
        self.seconds: list[float] = []
        self.memory = 0
        self._command = command
        self._asked = asked

    def run(self) -> None:
        """Run it once."""
        began = time.monotonic()
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=HERE.parent,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(self._asked)
            process.stdin.close()
            # Of the process and of those that it has waited for.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1):
            raise SystemExit(f"{self.name} failed with status {process.returncode}")
        self.seconds.append(time.monotonic() - began)
        self.memory = max(self.memory, usage.ru_maxrss * 1024)


def dump(blocks: int, shape: str, folder: str) -> Path:
    """Return the core file of a program with so many blocks."""
    with target("graph_target.c", shape, blocks) as running:
        command = ["gcore", "-o", f"{folder}/core", str(running.pid)]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        return Path(folder) / f"core.{running.pid}"


def measure(blocks: int, shape: str, runs: int, chap: str | None) -> None:
    """Print the table for one number of blocks."""
    with tempfile.TemporaryDirectory() as folder:
        core = dump(blocks, shape, folder)
        size = core.stat().st_size
        ours = Measured("reachscan core", command_line("core", core, "--contents", 0))
        others = [Measured("chap", [chap, str(core)], QUESTION)] if chap else []
        for _ in range(runs):
            for measured in (ours, *others):
                measured.run()
    heading(f"{blocks} blocks, {shape}: a core file of {size >> 20} MiB", "s")
    for measured in (ours, *others):
        row(measured.name, measured.seconds, ratio(measured.seconds, ours.seconds))
        print(f"{'':<4}memory: {measured.memory / size:.3f} times the core file")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", default="1000000,10000000")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shape", default="tree-random")
    parser.add_argument("--chap", default=shutil.which("chap"), help="no chap: only ours")
    arguments = parser.parse_args()
    if not shutil.which("gcore"):
        raise SystemExit("gcore is missing (Debian package gdb)")
    for blocks in map(int, arguments.blocks.split(",")):
        measure(blocks, arguments.shape, arguments.runs, arguments.chap)


if __name__ == "__main__":
    main()
