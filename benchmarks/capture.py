"""What does it cost to take a stack of 30 frames?

    python benchmarks/capture.py [--stacks N] [--runs N]

Nanoseconds of processor time, in programs that do nothing else, with frame pointers and without, by
the recorder's ways, of which nothing is remembered from one stack to the next, by libunwind's
(package libunwind-dev), and as instrumented functions tell. All are taken in turn, so that they
share what else the machine does.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import tempfile
from pathlib import Path

from measure import HERE, heading, row

NATIVE = HERE.parent / "native"
SOURCES = (
    *("recorder/create_tables.cpp", "recorder/unwind/eh_frame.cpp"),
    *("recorder/unwind/modules.cpp", "recorder/unwind/unwinder.cpp"),
    "instrumented/runtime.cpp",
)
CURSOR = "cursor"
WITH, WITHOUT = "-fno-omit-frame-pointer", "-fomit-frame-pointer"
INSTRUMENTED = "-finstrument-functions"
WAYS = {
    "frame pointers: the recorder": (WITH, "frame-pointers", 1),
    "frame pointers: unw_backtrace": (WITH, "unw_backtrace", 1),
    "unwind tables: the recorder": (WITHOUT, "tables", 1),
    "unwind tables: unw_backtrace": (WITHOUT, "unw_backtrace", 1),
    "unwind tables: unw_step": (WITHOUT, CURSOR, 1),
    "instrumented: get_tls_backtrace": (INSTRUMENTED, "told", 1),
    "instrumented: get_tls_backtrace, 10 threads": (INSTRUMENTED, "told", 10),
    "unwind tables: unw_step, 10 threads": (WITHOUT, CURSOR, 10),
}
"""How the program is built, how it takes stacks, and in how many threads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--stacks", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        programs = {flag: build(Path(folder), flag) for flag in (WITH, WITHOUT, INSTRUMENTED)}
        for _ in range(options.runs):
            for way, (flag, word, threads) in WAYS.items():
                stacks = options.stacks // (50 if word == CURSOR else 1) // threads
                command = [str(programs[flag]), word, str(stacks), str(threads)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                costs[way].append(float(done.stdout))
    heading("a stack of 30 frames", "ns")
    for way, numbers in costs.items():
        row(way, numbers)


def build(folder: Path, flag: str) -> Path:
    arch, library = folder / "arch", folder / "libcapture.so"
    if not arch.exists():
        arch.symlink_to(NATIVE / "arch" / platform.machine())
        alone = ["-shared", "-fPIC", "-fvisibility=hidden", "-fno-exceptions"]
        sources = [str(NATIVE / source) for source in SOURCES]
        compiler = ["c++", "-std=c++20", "-O2", *alone, f"-I{NATIVE}", f"-I{folder}"]
        own = str(HERE / "capture_library.cpp")
        subprocess.run([*compiler, "-o", str(library), own, *sources], check=True)
    program = folder / f"program{flag}"
    linked = [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lcapture", "-lunwind", "-pthread"]
    compiler = ["cc", "-O2", flag, "-o", str(program), str(HERE / "capture_target.c")]
    subprocess.run([*compiler, *linked], check=True)
    return program


if __name__ == "__main__":
    main()
