"""How long do attach and detach stop a process, compared with stopping and releasing it?

    python benchmarks/attach.py [--threads N] [--runs N]

The floor is one stop of all its threads. Before that, a single thread is stopped while the others
run. Measurements alternate, so that all see the same machine.
Without --threads: 2, 64 and 1000 threads.
"""

from __future__ import annotations

import argparse
import json
import subprocess

from measure import HERE, command_line, heading, ratio, row, target

THREADS = (2, 64, 1000)
MEGABYTES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, help="threads of the target")
    parser.add_argument("--runs", type=int, default=9, help="measurements of each (default 9)")
    options = parser.parse_args()
    for threads in [options.threads] if options.threads else THREADS:
        compare(threads, options.runs)


def compare(threads: int, runs: int) -> None:
    pauses: dict[str, list[float]] = {"attach": [], "detach": []}
    of_one: dict[str, list[float]] = {"attach": [], "detach": []}
    stops: list[float] = []
    with (
        target("fork_target.c", MEGABYTES, threads) as running,
        target("stop_release.c", running.pid) as stopper,
    ):
        for _ in range(runs):
            for command, measured in pauses.items():
                stops.append(stopper.ask_ms("stop"))
                told = run(command, running.pid)
                measured.append(told["pause_us"] / 1000)
                of_one[command].append(told["thread_pause_us"] / 1000)
    heading(f"{threads} threads, {runs} runs")
    row("stop and release alone", stops)
    for command, measured in pauses.items():
        row(command, measured, ratio(measured, stops))
        row("    one thread, before that", of_one[command])


def run(command: str, pid: int) -> dict[str, int]:
    line = command_line(command, pid, "--json")
    done = subprocess.run(line, cwd=HERE.parent, check=True, capture_output=True)
    told: dict[str, int] = json.loads(done.stdout)
    return told


if __name__ == "__main__":
    main()
