"""What does the recorder cost for each block that it does not record?

    python benchmarks/passed_on.py [--runs N]

Nanoseconds for a pair of malloc and free of 16 to 280 bytes, and how many of these the recorder
adds. The floor is a library that only jumps to the C library's functions. jemalloc with and without
its own profiling is measured where it is installed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from measure import HERE, heading, row

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
WAYS = {
    "--min-size 1024": RecordingOptions(min_size=1024),
    "--sample 512K": RecordingOptions(sample=512 << 10),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, jump = Path(folder) / "program", Path(folder) / "jump.so"
        build(program, "passed_on.c")
        build(jump, "passed_on_jump.c", "-shared", "-fPIC")
        ways = {"nothing": {}, "only jumps": {"LD_PRELOAD": str(jump)}}
        for way, chosen in WAYS.items():
            ways[way] = {"LD_PRELOAD": str(RECORDER), VARIABLE: chosen.settings(0, "")}
        if JEMALLOC.exists():
            for way, setting in (("", "false"), ("; it takes a sample each 512K", "true")):
                conf = f"prof:{setting},lg_prof_sample:19"
                ways[f"jemalloc{way}"] = {"LD_PRELOAD": str(JEMALLOC), "MALLOC_CONF": conf}
        show(program, ways, options.runs)


def build(made: Path, source: str, *flags: str) -> None:
    command = ["cc", "-O2", "-pthread", *flags, "-o", str(made), str(HERE / source), "-ldl"]
    subprocess.run(command, check=True)


def show(program: Path, ways: dict[str, dict[str, str]], runs: int) -> None:
    pairs: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(runs):
        for way, environment in ways.items():
            done = subprocess.run(
                [program],
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                check=True,
                text=True,
            )
            first, bare = map(float, done.stdout.split())
            pairs[way].append((first, bare))
    heading("a pair", "ns")
    for way, measured in pairs.items():
        row(way, [first for first, _ in measured])
        row("    more than the C library's", [first - bare for first, bare in measured])


if __name__ == "__main__":
    main()
