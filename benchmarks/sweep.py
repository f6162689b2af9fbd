"""How long does the search for leaks take, compared with LeakSanitizer and with bare reading?

    python benchmarks/sweep.py [--blocks N] [--runs N] [--shape SHAPE] [--short]

A scan's enumerating and marking is set against what the same graph takes otherwise: a tree against
LeakSanitizer's own check, buffers against a plain read of their memory, a list against following
its pointers; and heaps that are harder to walk, or that are mostly roots, against a plain tree of
as many blocks. All alternate, so that they see the same machine.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from measure import Target, heading, ratio, row, snapshot_of_scan, target

FLOORS = {
    "tree-random": ["lsan"],
    "tree-sequential": ["lsan"],
    "list-random": ["chase"],
    "buffers": ["lsan", "read"],
    "fragmented": ["lsan", "tree"],
    "arenas": ["tree"],
    "pools": ["tree"],
}
"""What a scan of each shape is compared with."""

NAMES = {
    "lsan": "LeakSanitizer",
    "read": "plain read",
    "chase": "bare pointer chase",
    "tree": "the tree",
}
THREADS = (1, 2)
BLOCKS_PER_BUFFER = 100


def sweep_ms(pid: int, threads: int) -> float:
    phases = snapshot_of_scan(pid, "--threads", threads, "--contents", 0)["phases_us"]
    return float(phases["enumerate"] + phases["mark"]) / 1000


def measure(shape: str, blocks: int, runs: int) -> None:
    count = blocks // BLOCKS_PER_BUFFER if shape == "buffers" else blocks
    with ExitStack() as stack:
        plain = stack.enter_context(target("graph_target.c", shape, count))
        asked: dict[str, Target] = dict.fromkeys(FLOORS[shape], plain)
        if "lsan" in asked:
            settings = "symbolize=0:max_leaks=1"
            asked["lsan"] = stack.enter_context(
                target("graph_target.c", shape, count, flags=["-fsanitize=leak"],
                       LSAN_OPTIONS=settings)
            )  # fmt: skip
        if "tree" in asked:
            asked["tree"] = stack.enter_context(target("graph_target.c", "tree-random", count))
        floors: dict[str, list[float]] = {name: [] for name in asked}
        scans: dict[int, list[float]] = {threads: [] for threads in THREADS}
        for _ in range(runs):
            for name, values in floors.items():
                other = asked[name]
                values.append(sweep_ms(other.pid, 1) if name == "tree" else other.ask_ms(name))
            for threads, values in scans.items():
                values.append(sweep_ms(plain.pid, threads))
        size = plain.memory("VmRSS") / 1e9
    heading(f"{shape}, {count} blocks, {size:.2f} GB, {runs} runs")
    for name, values in floors.items():
        row(NAMES[name], values)
    for threads, values in scans.items():
        row(f"enumerate and mark, {threads} threads", values)
        for name, others in floors.items():
            quotient = ratio(others, values) if name == "lsan" else ratio(values, others)
            words = "times as fast as" if name == "lsan" else "times the time of"
            print(f"  {quotient:.2f} {words} {NAMES[name]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shape", choices=FLOORS, action="append")
    parser.add_argument("--short", action="store_true", help="a million blocks, three runs")
    options = parser.parse_args()
    if options.short:
        options.blocks, options.runs = 1_000_000, 3
    for shape in options.shape or FLOORS:
        measure(shape, options.blocks, options.runs)


if __name__ == "__main__":
    main()
