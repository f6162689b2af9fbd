"""What the machine's memory allows at best: nanoseconds for a cache line, or for a page.

    python benchmarks/limits.py [--mb N] [--runs N]

A search for leaks can be no faster than its memory answers. A clone uses each page for the first
time, which the processor notes in page tables that are new.
"""

from __future__ import annotations

import argparse

from measure import heading, row, target

LINE = 64
PAGE = 4096
WAYS = {
    "chain": ("chain of dependent loads", LINE * 8),
    "random": ("independent loads", LINE),
    "prefetch": ("64 prefetched, then used", LINE),
    "order": ("in the order of addresses", LINE),
    "first 1": ("first use of a page, 1 thread", PAGE),
    "first 2": ("first use of a page, 2 threads", PAGE),
}
"""What is asked for -> its name, and for how many bytes of memory there is one step of it."""


def measure(megabytes: int, pages: str, runs: int) -> None:
    with target("limits_target.c", megabytes, pages) as running:
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(runs):
            for way, values in times.items():
                steps = (megabytes << 20) / WAYS[way][1]
                values.append(1e6 * running.ask_ms(way) / steps)
    heading(f"{megabytes} MB in {pages} pages, {runs} runs", "ns")
    for way, values in times.items():
        row(WAYS[way][0], values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--mb", type=int, default=720, help="of memory (default 720)")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    for pages in ("small", "huge"):
        measure(options.mb, pages, options.runs)


if __name__ == "__main__":
    main()
