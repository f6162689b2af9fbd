"""How long does a scan stop its target, compared with the target's own fork()?

    python benchmarks/pause.py [--gb N] [--threads N] [--runs N]

The floor of the pause is one copy of the page tables, which is what fork() does. Measurements
alternate, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE = 600


class Target:
    """The running program of fork_target.c."""

    def __init__(self, program: Path, megabytes: int, threads: int) -> None:
        self._process = subprocess.Popen(
            [program, str(megabytes), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._read() == "ready", "the target did not start"

    def fork_us(self) -> float:
        """Ask the target to fork itself."""
        assert self._process.stdin is not None
        self._process.stdin.write("fork\n")
        self._process.stdin.flush()
        return int(self._read()) / 1000

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def target(megabytes: int, threads: int) -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "fork_target"
        flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
        compiler = os.environ.get("CC", "gcc")
        source = HERE / "fork_target.c"
        subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
        running = Target(program, megabytes, threads)
        try:
            yield running
        finally:
            running.stop()


def pause_us(pid: int) -> float:
    command = [sys.executable, "-m", "reachscan", str(pid), "--json", "--method", "clone"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, cwd=HERE.parent, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(done.stderr.strip())
    return float(json.loads(done.stdout)["snapshot"]["pause_us"])


def row(name: str, values: list[float]) -> str:
    spread = f"{min(values) / 1000:9.2f} .. {max(values) / 1000:.2f}"
    return f"{name:<12}{statistics.median(values) / 1000:10.2f}{spread:>24}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gb", type=float, default=1.0, help="memory of the target (default 1)")
    parser.add_argument("--threads", type=int, default=2, help="its threads (default 2)")
    parser.add_argument("--runs", type=int, default=7, help="measurements of each (default 7)")
    options = parser.parse_args()
    forks: list[float] = []
    pauses: list[float] = []
    with target(round(options.gb * 1024), options.threads) as running:
        running.fork_us()  # the first of each warms up
        pause_us(running.pid)
        for _ in range(options.runs):
            forks.append(running.fork_us())
            pauses.append(pause_us(running.pid))
            forks.append(running.fork_us())
    print(f"{options.gb:g} GB in 4 KiB pages, {options.threads} threads, {options.runs} runs")
    print(f"{'':<12}{'median ms':>10}{'least .. most':>24}")
    print(row("own fork()", forks))
    print(row("pause", pauses))
    print(f"{'ratio':<12}{statistics.median(pauses) / statistics.median(forks):10.2f}")


if __name__ == "__main__":
    main()
