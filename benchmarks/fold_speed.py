"""How long a saved scan of many leaks takes to decode, fold and print, and how much memory.

    python benchmarks/fold_speed.py [--leaks N] [--kinds N] [--below N] [--runs N]

Makes a stream of leaked blocks of some kinds, so many of them hanging below each direct one as a
binary tree, then runs `reachscan report` on it for each format, as a person would. Besides the time
that passed it tells the processor's, which matters on a busy machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import heading, row

from reachscan.naming.containers import SHAPES
from reachscan.recording import model, wire, wire_columns
from reachscan.recording.zip_equal import zip_equal

HEAP, HEAP_SIZE = 0x5555_0000_0000, 1 << 40
LIBRARY, LIBRARY_SIZE = 0x7F00_0000_0000, 1 << 24
CHUNK = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--leaks", type=int, default=1_000_000)
    parser.add_argument("--kinds", type=int, default=10_000)
    parser.add_argument("--below", type=int, default=0, help="leaks below each direct one")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    shape = (options.leaks, options.kinds, options.below)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.rsc"
        # In a process of its own: peak memory of a child never reads lower than its parent's.
        writer = multiprocessing.Process(target=write_stream, args=(path, *shape))
        writer.start()
        writer.join()
        page = ["--format", "html", "-o", f"{folder}/page.html"]
        title = "report on {} leaks, {} kinds, {} below each head"
        heading(f"{title.format(*shape)}, {options.runs} runs", "s")
        for words in ([], ["--json"], ["--format", "logfmt"], page, ["--json", "--all"]):
            passed, busy, peaks = zip_equal(*(run(path, words) for _ in range(options.runs)))
            row(" ".join(words[:2]) or "text", passed)
            print(f"  {statistics.median(busy):.2f} s of processor, {max(peaks) / 1024:.0f} MB")


def run(path: Path, options: list[str]) -> tuple[float, float, int]:
    """Return seconds passed, seconds of processor and peak memory (KiB) of one report."""
    command = [sys.executable, "-m", "reachscan", "report", str(path), *options]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - begin
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        raise SystemExit(f"{command} failed")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def write_stream(path: Path, leaks: int, kinds: int, below: int) -> None:
    """Write a stream whose heads differ in size and in the code their first word points to."""
    chance = np.random.default_rng(1)
    place = np.arange(leaks) % (below + 1)
    is_head = place == 0
    parent = np.arange(leaks) - place + (place - 1) // 2
    kind = chance.integers(0, kinds, leaks)
    size = (24 + 16 * (kind % 100)).astype("<u8")
    words = chance.integers(0, 1 << 62, (leaks, 8)).astype("<u8")
    words[:, 0] = LIBRARY + 16 * (kind // 100)
    words[:, 1] = HEAP + chance.integers(0, HEAP_SIZE, leaks)
    columns = wire_columns.LeakColumns(
        (HEAP + 2048 * np.arange(leaks)).astype("<u8"),
        size,
        np.where(is_head, model.DIRECT, parent).astype("<u4"),
        words,
    )
    with path.open("wb") as file:
        file.write(wire.hello_bytes())
        file.writelines(facts())
        for i in range(0, leaks, CHUNK):
            part = columns.slice(i, i + CHUNK)
            file.write(wire.frame_bytes(wire.Frame(wire.LEAKS, wire_columns.leaks_payload(part))))
            shapes = np.where(place, place % len(SHAPES), 0)[i : i + CHUNK].astype("u1")
            payload = np.uint32(len(shapes)).tobytes() + shapes.tobytes()
            file.write(wire.frame_bytes(wire.Frame(wire.SHAPES, payload)))
        totals = {"allocations": leaks, "bytes": int(size.sum())}
        totals |= {"leaked": leaks, "leaked_bytes": int(size.sum())}
        totals |= {"direct": int(is_head.sum()), "direct_bytes": int(size[is_head].sum())}
        file.write(wire.encode(wire.FINAL, totals))


def facts() -> list[bytes]:
    """Return the records about a process with one library and one heap."""
    target = {"pid": 1, "threads": 1, "started": 0, "name": "many", "exe": "/many", "command": []}
    places = {"inode": 1, "offset": 0, "path": "/usr/lib/libmany.so"}
    code = {"start": LIBRARY, "end": LIBRARY + LIBRARY_SIZE, "permissions": 5, **places}
    snapshot = {"method": "clone", "reason": "", "pause_ns": 0, "attempts": 1, "drain_runs": 0}
    region = np.array([HEAP, HEAP + HEAP_SIZE], "<u8").tobytes() + bytes(8)
    return [
        wire.encode(wire.TARGET, target),
        wire.encode(wire.MAPPINGS, [code]),
        wire.encode(wire.SNAPSHOT, {**snapshot, "phases": []}),
        wire.frame_bytes(wire.Frame(wire.REGIONS, b"\1\0\0\0" + region)),
    ]


if __name__ == "__main__":
    main()
