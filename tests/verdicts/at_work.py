"""Scans programs while they work, and looks whether what is definitely lost stays as it is.

    python tests/verdicts/at_work.py [--scans 50] [--method clone] [NAME ...]

It needs PYTHONPATH=tests/support. Nobody can free or change a lost block. So if a definite leak of
one scan is no live block any more a moment later, or has other contents or another size, it was in
use.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from idle_programs import Scene, Stage
from idle_servers import nginx, postgres, postgres_programs, redis
from programs import answers, children, program
from scans import PATIENTLY, list_heap, recording_of
from verdicts import row, stage
from victims import need, wait_until

from reachscan.errors import ReachscanError
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

PYTHON = """
import json, re, sqlite3, threading
def work(n):
    db = sqlite3.connect(':memory:')
    db.execute('create table t(a, b)')
    db.executemany('insert into t values (?, ?)', [(i, 'v%d' % (i * n)) for i in range(2000)])
    rows = json.loads(json.dumps([list(r) for r in db.execute('select * from t order by b')]))
    [re.sub('v', str(n), row[1]) for row in rows]
    db.close()
n = 0
while True:
    threads = [threading.Thread(target=work, args=(n + i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    n += 1
"""
NODE = """
const zlib = require('zlib'), crypto = require('crypto');
function work(n) {
  const rows = [];
  for (let i = 0; i < 9999; ++i) rows.push({i, s: 'v' + i + n});
  const text = JSON.stringify(rows);
  zlib.gunzipSync(zlib.gzipSync(text));
  crypto.createHash('sha256').update(text).digest('hex');
  JSON.parse(text);
  setTimeout(work, 10, n + 1);
}
work(0);
"""

Contents = dict[int, tuple[int, bytes]]
"""Size and bytes of blocks by their addresses."""


@contextmanager
def repeated(step: Callable[[], object]) -> Iterator[None]:
    """Do this again and again meanwhile."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def python_at_work(_: Stage) -> Iterator[dict[str, int]]:
    with program([need("python3", "python3"), "-c", PYTHON]) as process:
        yield {"python3": process.pid}


@contextmanager
def node_at_work(_: Stage) -> Iterator[dict[str, int]]:
    with program([need("node", "nodejs"), "-e", NODE]) as process:
        yield {"node": process.pid}


@contextmanager
def redis_at_work(where: Stage) -> Iterator[dict[str, int]]:
    benchmark = [need("redis-benchmark", "redis-tools"), "-s", where.folder / "socket", "-l"]
    with redis(where) as processes, program(benchmark):
        yield processes


@contextmanager
def nginx_at_work(where: Stage) -> Iterator[dict[str, int]]:
    request = b"GET / HTTP/1.0\r\n\r\n"
    served = repeated(lambda: answers(where.folder / "socket", request, b"hello"))
    with nginx(where) as processes, served:
        yield processes


@contextmanager
def postgres_at_work(where: Stage) -> Iterator[dict[str, int]]:
    bench = [postgres_programs() / "pgbench", "-h", where.folder, "-U", "tester"]
    with postgres(where) as processes:
        make = list(map(str, [*bench, "-i", "-q", "postgres"]))
        subprocess.run(make, check=True, capture_output=True)
        before = set(children(processes["postgres"]))
        with program([*bench, "-T", 100000, "postgres"], stderr=subprocess.DEVNULL):
            backends: set[int] = set()

            def is_connected() -> bool:
                # The first connection is only for questions about the tables.
                backends.update(set(children(processes["postgres"])) - before)
                return len(backends) > 1

            wait_until(is_connected, "a client is connected")
            yield {"postgres": processes["postgres"], "postgres backend": max(backends)}


PROGRAMS: dict[str, Scene] = {
    "python3": python_at_work,
    "node": node_at_work,
    "redis": redis_at_work,
    "nginx": nginx_at_work,
    "postgres": postgres_at_work,
}


def definite_leaks(pid: int, method: str) -> Contents:
    leaks = recording_of(pid, "--method", method, *PATIENTLY).leaks
    definite = leaks.reason == model.DEFINITE
    sizes = zip_equal(leaks.address[definite].tolist(), leaks.size[definite].tolist())
    return read(pid, dict(sizes))


def read(pid: int, sizes: dict[int, int]) -> Contents:
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        return {a: (size, os.pread(memory.fileno(), size, a)) for a, size in sizes.items()}


def no_longer_lost(pid: int, leaks: Contents) -> list[str]:
    """Return which of the blocks are not what they were, each with its size."""
    if not leaks:
        return []
    live = {int(address): int(size) for address, size, _ in list_heap(pid)}
    now = read(pid, {a: live[a] for a in leaks if a in live})
    return [f"{a:#x} ({leaks[a][0]} bytes)" for a in leaks if now.get(a) != leaks[a]]


def scanned(what: str, pid: int, scans: int, method: str) -> None:
    count, wrong, refusals = 0, list[str](), Counter[str]()
    for _ in range(scans):
        try:
            leaks = definite_leaks(pid, method)
        except ReachscanError as refusal:
            refusals[str(refusal)] += 1
            continue
        count += len(leaks)
        wrong += no_longer_lost(pid, leaks)
    row(what, scans, count, len(wrong), ", ".join(wrong) or "none", dict(refusals) or "none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scans", type=int, default=50)
    parser.add_argument("--method", default="clone", choices=["clone", "copy", "track"])
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []], metavar="NAME")
    arguments = parser.parse_args()
    row("program", "scans", "definite in all", "of these in use", "which", "refused")
    for name in arguments.names or PROGRAMS:
        with stage() as where, PROGRAMS[name](where) as processes:
            for what, pid in processes.items():
                scanned(what, pid, arguments.scans, arguments.method)


if __name__ == "__main__":
    main()
