"""What does recording cost a server under load?

    python benchmarks/recorder_server.py [--requests N] [--runs N] [SERVER...]

Requests per second that redis-benchmark counts at redis-server (SET and GET of 100 and 4000 bytes,
50 connections) and ab at nginx (a small file, 50 connections that are kept), and the processor time
that the server takes for one, which tells more where others use the machine. All ways are taken in
turn; the ratios are those of the medians, nothing recorded being 1.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import HERE, command_line, heading, row

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

BARE, WHERE = "not recorded", "where: sizes of no block"
STARTED = {
    BARE: None,
    "everything": RecordingOptions(),
    "--min-size 1024": RecordingOptions(min_size=1024),
}
"""How servers are started; in all other ways they are attached to as they run."""
ATTACHED = {"attach: everything": (), WHERE: ("--sizes", "7654321")}
WAYS = (*STARTED, *ATTACHED)
CONNECTIONS = "50"
BYTES = (100, 4000)
SECONDS_TO_START = 10.0
NGINX = """
daemon off;
master_process off;
error_log {folder}/errors;
pid {folder}/pid;
events {{}}
http {{
  access_log off;
  keepalive_requests 1000000000;
  server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""


class Server(NamedTuple):
    """A server, and what makes requests.

    Attributes:
        packages: what must be installed for it.
        command: returns the command that starts it with its files in a folder.
        load: makes so many requests of each kind, and returns how many are answered in a second.
    """

    packages: str
    command: Callable[[Path, int], list[str]]
    load: Callable[[int, int], list[float]]


def redis(folder: Path, port: int) -> list[str]:
    return ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)]


def load_redis(port: int, requests: int) -> list[float]:
    rates = []
    for size in BYTES:
        to = ["redis-benchmark", "-p", str(port), "-c", CONNECTIONS, "-t", "set,get", "--csv"]
        told = output([*to, "-n", str(requests), "-d", str(size)])
        rates += [float(line["rps"]) for line in csv.DictReader(told.splitlines())]
    return rates


def nginx(folder: Path, port: int) -> list[str]:
    folder.chmod(0o755)
    (folder / "index.html").write_text("<p>" + "a" * 500)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    return ["nginx", "-c", f"{folder}/nginx.conf", "-p", str(folder)]


def load_nginx(port: int, requests: int) -> list[float]:
    page = f"http://127.0.0.1:{port}/index.html"
    told = output(["ab", "-q", "-k", "-c", CONNECTIONS, "-n", str(requests), page])
    answered = re.search(r"Failed requests: +0\n.*Requests per second: +([\d.]+)", told, re.S)
    if not answered:
        sys.exit(f"nginx did not answer all requests:\n{told}")
    return [float(answered.group(1))]


SERVERS = {
    "redis": Server("redis-server redis-tools", redis, load_redis),
    "nginx": Server("nginx-light apache2-utils", nginx, load_nginx),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("servers", nargs="*", choices=[*SERVERS, []], metavar="SERVER")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for name in options.servers or SERVERS:
        compare(name, SERVERS[name], options.requests, options.runs)


def compare(name: str, kind: Server, requests: int, runs: int) -> None:
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in WAYS:
            rate, cost = measured(kind, way, requests)
            rates[way].append(rate)
            costs[way].append(cost)
    show(f"{name}: requests per second", "1/s", rates)
    show(f"{name}: processor time for a request", "us", costs)


def show(title: str, unit: str, values: dict[str, list[float]]) -> None:
    heading(title, unit)
    bare = statistics.median(values[BARE])
    for way, numbers in values.items():
        row(way, numbers, statistics.median(numbers) / bare)


def measured(kind: Server, way: str, requests: int) -> tuple[float, float]:
    """Return how many requests a server answers in a second, and microseconds of its for one."""
    with tempfile.TemporaryDirectory() as folder, server(kind, way, Path(folder)) as (pid, port):
        kind.load(port, requests // 10)
        before = processor_seconds(pid)
        rates = kind.load(port, requests)
        spent = processor_seconds(pid) - before
    return statistics.harmonic_mean(rates), 1e6 * spent / (requests * len(rates))


@contextmanager
def server(kind: Server, way: str, folder: Path) -> Iterator[tuple[int, int]]:
    environment, options, port = dict(os.environ), STARTED.get(way), free_port()
    if options is not None:
        environment |= {"LD_PRELOAD": str(RECORDER), VARIABLE: options.settings(0, "")}
    command = kind.command(folder, port)
    if not shutil.which(command[0]):
        sys.exit(f"{command[0]} is missing: install {kind.packages}")
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            await_start(process, port)
            if way in ATTACHED:
                told = command_line("attach", process.pid, *ATTACHED[way])
                subprocess.run(told, cwd=HERE.parent, check=True, stdout=subprocess.DEVNULL)
            yield process.pid, port
        finally:
            process.terminate()


def await_start(process: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"{process.args!r} does not start")
        time.sleep(0.01)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
