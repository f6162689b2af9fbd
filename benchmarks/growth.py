"""What does a block cost, in time and in memory, as the heap grows?

    python benchmarks/growth.py [--blocks N ...] [--runs N] [--short]

Memory is what the scan adds to the machine: what the helper holds, and what the clone does not
share with the target; page tables are left out, as they are a fork's.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from measure import Target, command_line, heading, row, snapshot_of_scan, target

SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
SHORT_SIZES = (300_000, 1_000_000, 3_000_000)
SHAPES = ("tree-sequential", "fragmented", "arenas", "pools")
PHASES = ("enumerate", "mark", "collect")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, nargs="+", default=SIZES)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="up to three million blocks")
    options = parser.parse_args()
    for shape in SHAPES:
        heading(f"{shape}, per block", "ns")
        for blocks in SHORT_SIZES if options.short else options.blocks:
            with target("graph_target.c", shape, blocks) as running:
                show(running, blocks, options.runs)


def show(running: Target, blocks: int, runs: int) -> None:
    times: list[float] = []
    peaks: list[float] = []
    for _ in range(runs):
        phases = snapshot_of_scan(running.pid, "--contents", 0)["phases_us"]
        times.append(1000 * sum(phases[name] for name in PHASES) / blocks)
        peaks.append(peak_of_scan(running.pid) / 1e6)
    resident = running.memory("VmRSS")
    row(f"{blocks} blocks, {resident / 1e9:.2f} GB", times)
    share = 100 * statistics.median(peaks) / (resident / 1e6)
    row(f"  extra memory, MB, {share:.2f} %", peaks)


def peak_of_scan(pid: int) -> int:
    """Return the most memory, in bytes, that a scan of the process held at any time."""
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, sum(map(memory_of, family(pid))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    command = command_line(pid, "--method", "clone", "--contents", 0)
    scan = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    done.set()
    watcher.join()
    if scan.returncode not in (0, 1):
        sys.exit(f"the scan failed: exit status {scan.returncode}")
    return peak


def family(pid: int) -> Sequence[Path]:
    """Return the helper and the clone that it made of the process, as far as they are there."""
    helpers = {
        path
        for path in Path("/proc").glob("[0-9]*")
        if f"--pid\0{pid}\0".encode() in contents(path / "cmdline")
    }
    own = {int(path.name) for path in helpers}
    clones = [
        path
        for path in Path("/proc").glob("[0-9]*")
        if int(path.name) != pid and tracer_of(path) in own
    ]
    return [*helpers, *clones]


def tracer_of(path: Path) -> int:
    """Return the process that the tracing thread belongs to, 0 if there is none."""
    for line in contents(path / "status").splitlines():
        if line.startswith(b"TracerPid:"):
            status = contents(Path("/proc") / line.split()[1].decode() / "status")
            groups = [row for row in status.splitlines() if row.startswith(b"Tgid:")]
            return int(groups[0].split()[1]) if groups else 0
    return 0


def memory_of(path: Path) -> int:
    """Return what the process has for itself, in bytes."""
    private = 0
    for line in contents(path / "smaps_rollup").splitlines():
        if line.startswith((b"Private_Clean:", b"Private_Dirty:")):
            private += int(line.split()[1]) * 1024
    return private


def contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


if __name__ == "__main__":
    main()
