"""What the benchmarks share: programs to measure, scans of them, and rows of a table."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PATIENCE = 1800
"""Seconds after which a scan is given up."""


class Target:
    """A running program that says `ready` and then answers each line with nanoseconds."""

    def __init__(self, command: Sequence[object], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
            text=True,
        )
        self.pid = self._process.pid
        if self._read() != "ready":
            sys.exit(f"{command[0]} did not start")

    def ask_ms(self, what: str) -> float:
        """Ask for one measurement of its own."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return int(self._read()) / 1e6

    def memory(self, field: str) -> int:
        """Return a field of its status that is in KiB, as bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise ValueError(field)

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def target(
    source: str, *arguments: object, flags: Sequence[str] = (), **environment: str
) -> Iterator[Target]:
    """Compile a program of this folder and run it inside the block."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / Path(source).stem
        warnings = ["-Wall", "-Wextra", "-Werror"]
        command = [os.environ.get("CC", "gcc"), "-O2", *warnings, "-pthread", *flags]
        subprocess.run([*command, str(HERE / source), "-o", str(program)], check=True)
        running = Target([program, *arguments], environment)
        try:
            yield running
        finally:
            running.stop()


def command_line(*words: object) -> list[str]:
    """Return the command line that runs reachscan as it is here."""
    return [sys.executable, "-m", "reachscan", *map(str, words)]


def snapshot_of_scan(pid: int, *options: object) -> dict[str, Any]:
    """Scan and return what the report says about the snapshot: pause_us, phases_us."""
    done = subprocess.run(
        command_line(pid, "--json", "--method", "clone", *options),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=HERE.parent,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(done.stderr.strip())
    snapshot: dict[str, Any] = json.loads(done.stdout)["snapshot"]
    return snapshot


def heading(title: str, unit: str = "ms") -> None:
    """Print the head of a table."""
    print(f"\n{title}\n{'':<34}{'median ' + unit:>12}{'least .. most':>24}{'ratio':>9}")


def row(name: str, values: Sequence[float], ratio: float | None = None) -> None:
    """Print one row: the median of the values, their spread, and what the row is about."""
    spread = f"{min(values):.2f} .. {max(values):.2f}"
    last = "" if ratio is None else f"{ratio:9.2f}"
    print(f"{name:<34}{statistics.median(values):12.2f}{spread:>24}{last}", flush=True)


def ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Return how many times the other median the median is."""
    return statistics.median(values) / statistics.median(others)
