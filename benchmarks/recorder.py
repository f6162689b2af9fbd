"""What does recording cost a program that does nothing but allocate?

    python benchmarks/recorder.py [--pairs N] [--runs N] [--short]

Nanoseconds of processor time for a pair of malloc and free of 16 to 280 bytes, 27 calls deep,
in programs with and without frame pointers. All ways are taken in turn, so that they share what
else the machine does. heaptrack is measured where it is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import HERE, heading, row

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

WAYS = {
    "everything": RecordingOptions(),
    "--min-size 1024": RecordingOptions(min_size=1024),
    "--sample 512K": RecordingOptions(sample=512 << 10),
}
BUILDS = {
    "unwind tables": ("-fomit-frame-pointer",),
    "frame pointers": ("-fno-omit-frame-pointer",),
}
BARE, HEAPTRACK = "bare", "heaptrack"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=3_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="a tenth of the pairs")
    options = parser.parse_args()
    pairs = options.pairs // 10 if options.short else options.pairs
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in BUILDS.items():
            program = build(Path(folder) / "program", flags)
            for threads in (1, 2):
                show(f"{name}, {threads} threads", program, threads, pairs, options.runs)


def build(program: Path, flags: Sequence[str]) -> Path:
    source = HERE / "recorder_target.c"
    command = ["cc", "-O2", "-pthread", *flags, "-o", str(program), str(source)]
    subprocess.run(command, check=True)
    return program


def show(title: str, program: Path, threads: int, pairs: int, runs: int) -> None:
    ways = [BARE, *WAYS, *([HEAPTRACK] if shutil.which(HEAPTRACK) else [])]
    costs: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(runs):
        for way in ways:
            costs[way].append(cost(way, program, threads, pairs))
    heading(f"{title}, a pair", "ns")
    for way in ways:
        row(way, costs[way])
    bare = statistics.median(costs[BARE])
    for way in ways[1:]:
        row(f"  {way}, added", [value - bare for value in costs[way]])


def cost(way: str, program: Path, threads: int, pairs: int) -> float:
    command, environment = [str(program), str(threads), str(pairs)], dict(os.environ)
    if way in WAYS:
        environment["LD_PRELOAD"] = str(RECORDER)
        environment[VARIABLE] = WAYS[way].settings(0, "")
    with tempfile.TemporaryDirectory() as folder:
        if way == HEAPTRACK:
            command = [HEAPTRACK, "-r", "-o", f"{folder}/record", *command]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, check=True, text=True
        )
    numbers = [line for line in done.stdout.splitlines() if line.replace(".", "").isdigit()]
    return float(numbers[0]) / threads


if __name__ == "__main__":
    main()
