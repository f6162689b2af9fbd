"""How much memory and how large a file does recording take?

    python benchmarks/recorder_footprint.py [--runs N]

Memory: what the peak of a program's resident memory grows by, for each of 1.5 million blocks that
it loses. Files: what is kept of a run of 3 million pairs of malloc and free that loses every 1000th
block. Both against heaptrack, which writes every event to its file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from measure import HERE, command_line, heading, ratio, row

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

LIVE = 1_500_000
PAIRS, EACH = 3_000_000, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5)
    runs = range(parser.parse_args().runs)
    if not shutil.which("heaptrack"):
        sys.exit("heaptrack is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = str(folder / "program")
        source = str(HERE / "recorder_target.c")
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        all_lost = [program, "1", str(LIVE), "1"]
        preloads = [{}, recorder(), heaptrack(folder)]
        bare, ours, theirs = ([peak(all_lost, preload) for _ in runs] for preload in preloads)
        base = statistics.median(bare)
        heading(f"memory for each of {LIVE} live blocks", "bytes")
        row("the recorder", [(value - base) / LIVE for value in ours])
        row("heaptrack", [(value - base) / LIVE for value in theirs])
        some_lost = [program, "1", str(PAIRS), str(EACH)]
        saved = [file_of_run(some_lost, folder) for _ in runs]
        traces = [file_of_heaptrack(some_lost, folder) for _ in runs]
        heading(f"the file of a run that loses {PAIRS // EACH} of {PAIRS} blocks", "KiB")
        row("heaptrack", traces)
        row("a recorded scan, --save FILE.rsc.gz", saved, ratio(saved, traces))


def recorder() -> dict[str, str]:
    return {"LD_PRELOAD": str(RECORDER), VARIABLE: RecordingOptions().settings(0, "")}


def heaptrack(folder: Path) -> dict[str, str]:
    library = Path(shutil.which("heaptrack") or "").parents[1] / "lib/heaptrack"
    return {
        "LD_PRELOAD": str(library / "libheaptrack_preload.so"),
        "DUMP_HEAPTRACK_OUTPUT": str(folder / "trace"),
    }


def peak(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Return the most resident memory that a program has had, in bytes."""
    process = os.posix_spawn(
        command[0],
        list(command),
        {**os.environ, **environment},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
    )
    _, status, usage = os.wait4(process, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed: {status}")
    return usage.ru_maxrss * 1024


def file_of_run(command: Sequence[str], folder: Path) -> float:
    file = folder / "saved.rsc.gz"
    with subprocess.Popen(
        command,
        env={**os.environ, **recorder()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has lost them all
        line = command_line(process.pid, "--save", file, "-o", folder / "report")
        subprocess.run(line, cwd=HERE.parent, check=False, capture_output=True)
        process.communicate()
    return file.stat().st_size / 1024


def file_of_heaptrack(command: Sequence[str], folder: Path) -> float:
    subprocess.run(
        ["heaptrack", "-r", "-o", folder / "record", *command],
        stdin=subprocess.DEVNULL,
        check=True,
        capture_output=True,
    )
    (file,) = folder.glob("record*")
    size = file.stat().st_size / 1024
    file.unlink()
    return size


if __name__ == "__main__":
    main()
