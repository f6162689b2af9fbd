"""How long does the whole command take, from the shell and back?

    python benchmarks/command.py [--blocks N] [--runs N] [--short]

On an idle shell it is compared with starting Python and with attaching a debugger; on a large heap
with gcore, which only writes the memory out, and with chap, if it is there, which then looks for
leaks in what was written (minutes for each run).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from measure import HERE, command_line, heading, ratio, row, target

# What is installed has been compiled to bytecode; here the first run does that.
_ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def seconds(command: Sequence[str], asked: str = "") -> float:
    begin = time.monotonic()
    done = subprocess.run(
        command,
        input=asked.encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=HERE.parent,
        env=_ENVIRONMENT,
        check=False,
    )
    if done.returncode not in (0, 1):
        sys.exit(f"{command} failed: {done.stderr.decode()}")
    return time.monotonic() - begin


def idle_shell(runs: int) -> None:
    shell = subprocess.Popen(["bash", "-c", "read line; :"], stdin=subprocess.PIPE)
    commands = {
        "python3 -c pass": [sys.executable, "-c", "pass"],
        "reachscan": command_line(shell.pid),
    }
    if shutil.which("gdb"):
        commands["gdb -p PID -batch"] = ["gdb", "-p", str(shell.pid), "-batch"]
    times: dict[str, list[float]] = {name: [] for name in commands}
    try:
        for command in commands.values():
            seconds(command)  # the first of each warms up
        for _ in range(runs):
            for name, command in commands.items():
                times[name].append(1000 * seconds(command))
    finally:
        shell.kill()
        shell.wait()
    heading(f"whole command, idle bash, {runs} runs")
    for name, values in times.items():
        row(name, values, ratio(values, times["python3 -c pass"]))


def large_heap(blocks: int, runs: int) -> None:
    times: dict[str, list[float]] = {"reachscan": []}
    with (
        target("graph_target.c", "tree-random", blocks) as running,
        tempfile.TemporaryDirectory() as folder,
    ):
        for _ in range(runs):
            times["reachscan"].append(seconds(command_line(running.pid)))
            if not shutil.which("gcore"):
                continue
            took = seconds(["gcore", "-o", f"{folder}/core", str(running.pid)])
            times.setdefault("gcore alone", []).append(took)
            if not shutil.which("chap"):
                continue
            took += seconds(["chap", f"{folder}/core.{running.pid}"], asked="count leaked\n")
            times.setdefault("gcore and chap", []).append(took)
        size = running.memory("VmRSS") / 1e9
    heading(f"whole command, {blocks} blocks, {size:.1f} GB, {runs} runs", "s")
    for name, values in times.items():
        row(name, values, ratio(values, times["reachscan"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=30_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="only the idle shell")
    options = parser.parse_args()
    idle_shell(3 * options.runs)
    if not options.short:
        large_heap(options.blocks, options.runs)


if __name__ == "__main__":
    main()
