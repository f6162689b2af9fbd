"""How long does the search for leaks take in the heaps of other allocators, compared with glibc's?

    python benchmarks/allocators.py [--blocks N] [--runs N] [--short]

The same graph is made by each allocator; scans alternate, so that they see the same machine. An
allocator that is not installed is left out, and named.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from measure import Target, heading, row, target
from sweep import sweep_ms

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
PRELOADED = {
    "jemalloc": LIBRARIES / "libjemalloc.so.2",
    "mimalloc": LIBRARIES / "libmimalloc.so.2",
    "tcmalloc": LIBRARIES / "libtcmalloc_minimal.so.4",
    "scudo": Path("/usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.scudo_standalone-x86_64.so"),
}
MUSL = Path("/usr/lib/x86_64-linux-musl/musl-gcc.specs")
SHAPE = "tree-random"


def start(stack: ExitStack, blocks: int) -> dict[str, Target]:
    """Start a target on each allocator that is there, glibc's first."""
    running = {"glibc": stack.enter_context(target("graph_target.c", SHAPE, blocks))}
    for name, library in PRELOADED.items():
        if not library.exists():
            print(f"{name} is left out: there is no {library}")
            continue
        running[name] = stack.enter_context(
            target("graph_target.c", SHAPE, blocks, LD_PRELOAD=str(library))
        )
    if MUSL.exists():
        flags = [f"-specs={MUSL}"]
        running["musl"] = stack.enter_context(target("graph_target.c", SHAPE, blocks, flags=flags))
    else:
        print(f"musl is left out: there is no {MUSL}")
    return running


def measure(blocks: int, runs: int) -> None:
    with ExitStack() as stack:
        running = start(stack, blocks)
        scans: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(runs):
            for name, values in scans.items():
                values.append(sweep_ms(running[name].pid, 1))
    heading(f"{SHAPE}, {blocks} blocks, {runs} runs, one thread; ratio: least to glibc's least")
    for name, values in scans.items():
        row(name, values, min(values) / min(scans["glibc"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--blocks", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="a million blocks, three runs")
    options = parser.parse_args()
    if options.short:
        options.blocks, options.runs = 1_000_000, 3
    measure(options.blocks, options.runs)


if __name__ == "__main__":
    main()
