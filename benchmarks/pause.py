"""How long does a scan stop its target, compared with the target's own fork()?

    python benchmarks/pause.py [--gb N] [--threads N] [--runs N] [--short | --track]

The floor of the pause is one copy of the page tables, which is what fork() does; with many threads
it is stopping them all and letting them go. Measurements alternate, so that all see the same
machine. Without options: 1 and 4 GB with 2 and 64 threads, and 1000 threads. With --track: 4 and
8 GB by that method, which takes as much memory again.
"""

from __future__ import annotations

import argparse

from measure import heading, ratio, row, snapshot_of_scan, target

MANY_THREADS = 1000
CASES = ((1, 2), (1, 64), (4, 2), (4, 64), (0.01, MANY_THREADS))
SHORT_CASES = ((1, 2), (1, 64))
TRACK_CASES = ((4, 2), (8, 2))


def pause_ms(pid: int, method: str = "clone") -> float:
    return float(snapshot_of_scan(pid, "--method", method)["pause_us"]) / 1000


def measure(gigabytes: float, threads: int, runs: int) -> None:
    forks: list[float] = []
    stops: list[float] = []
    pauses: list[float] = []
    with (
        target("fork_target.c", round(gigabytes * 1024), threads) as running,
        target("stop_release.c", running.pid) as stopper,
    ):
        running.ask_ms("fork")  # the first of each warms up
        pause_ms(running.pid)
        for _ in range(runs):
            forks.append(running.ask_ms("fork"))
            stops.append(stopper.ask_ms("stop"))
            pauses.append(pause_ms(running.pid))
            forks.append(running.ask_ms("fork"))
    heading(f"{gigabytes:g} GB in 4 KiB pages, {threads} threads, {runs} runs")
    row("own fork()", forks)
    row("stop and release alone", stops)
    row("pause", pauses)
    print(
        f"  pause: {ratio(pauses, forks):.2f} times fork(), {ratio(pauses, stops):.2f} times stop"
    )


def measure_track(gigabytes: float, threads: int, runs: int) -> None:
    pauses: list[float] = []
    clones: list[float] = []
    with target("fork_target.c", round(gigabytes * 1024), threads) as running:
        for _ in range(runs):
            pauses.append(pause_ms(running.pid, "track"))
            clones.append(pause_ms(running.pid))
    heading(f"{gigabytes:g} GB in 4 KiB pages, {threads} threads, {runs} runs")
    row("pause by clone", clones)
    row("pause by track", pauses, ratio(pauses, clones))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gb", type=float, help="memory of the target")
    parser.add_argument("--threads", type=int, default=2, help="its threads, with --gb (default 2)")
    parser.add_argument("--runs", type=int, default=7, help="measurements of each (default 7)")
    parser.add_argument("--short", action="store_true", help="1 GB only, five runs")
    parser.add_argument("--track", action="store_true", help="the method track against clone")
    options = parser.parse_args()
    cases = TRACK_CASES if options.track else SHORT_CASES if options.short else CASES
    for gigabytes, threads in [(options.gb, options.threads)] if options.gb else cases:
        run = measure_track if options.track else measure
        run(gigabytes, threads, 5 if options.short else options.runs)


if __name__ == "__main__":
    main()
