"""What does recording cost a server under load?

    python benchmarks/recorder_server.py [--requests N] [--runs N]

Requests per second of redis-server, as redis-benchmark counts them (SET and GET of 100 and 4000
bytes, 50 connections over a socket in the file system), and the processor time that the server took
for one, which tells more where others use the machine. All ways are taken in turn; the ratios are
those of the medians, nothing recorded being 1.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import heading, row

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

BARE = "not recorded"
WAYS = {
    BARE: None,
    "everything": RecordingOptions(),
    "--min-size 1024": RecordingOptions(min_size=1024),
}
SERVER, CLIENT = "redis-server", "redis-benchmark"
BYTES = (100, 4000)
SECONDS_TO_START = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if not (shutil.which(SERVER) and shutil.which(CLIENT)):
        sys.exit(f"{SERVER} and {CLIENT} are missing: install redis-server and redis-tools")
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(options.runs):
        for way in WAYS:
            rate, cost = measured(way, options.requests)
            rates[way].append(rate)
            costs[way].append(cost)
    show("requests per second", "1/s", rates)
    show("processor time for a request", "us", costs)


def show(title: str, unit: str, values: dict[str, list[float]]) -> None:
    heading(title, unit)
    for way, numbers in values.items():
        row(way, numbers)
    bare = statistics.median(values[BARE])
    for way, numbers in values.items():
        print(f"  {way}: {statistics.median(numbers) / bare:.3f}")


def measured(way: str, requests: int) -> tuple[float, float]:
    """Return how many requests a server answers in a second, and microseconds of its for one."""
    with tempfile.TemporaryDirectory() as folder, server(way, Path(folder)) as (pid, socket):
        before, rates = processor_seconds(pid), []
        for size in BYTES:
            load = [
                CLIENT,
                "-s",
                str(socket),
                "-t",
                "set,get",
                "-n",
                str(requests),
                "-d",
                str(size),
            ]
            done = subprocess.run([*load, "--csv"], check=True, capture_output=True, text=True)
            rates += [float(line["rps"]) for line in csv.DictReader(done.stdout.splitlines())]
        spent = processor_seconds(pid) - before
    return statistics.harmonic_mean(rates), 1e6 * spent / (requests * len(rates))


@contextmanager
def server(way: str, folder: Path) -> Iterator[tuple[int, Path]]:
    environment, options = dict(os.environ), WAYS[way]
    if options is not None:
        environment |= {"LD_PRELOAD": str(RECORDER), VARIABLE: options.settings(0, "")}
    socket = folder / "socket"
    command = [
        SERVER,
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--save",
        "",
        "--dir",
        str(folder),
    ]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + SECONDS_TO_START
            while not socket.exists():
                if time.monotonic() > end or process.poll() is not None:
                    sys.exit(f"{SERVER} does not start")
                time.sleep(0.01)
            yield process.pid, socket
        finally:
            process.terminate()


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
