"""Runs reachscan the way a user does, and the native helper where more must be seen."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from loaded_cli import loaded_cli
from numpy.typing import NDArray
from victims import REPOSITORY, Truth

from reachscan.recording import model, wire, wire_columns
from reachscan.recording.decode import decode

HELPER = Path(
    os.environ.get("REACHSCAN_HELPER") or REPOSITORY / "reachscan" / "_native" / "reachscan-helper"
)
PATIENCE = 600.0
PATIENTLY = ("--max-pause", "20000")
"""Threads of a busy machine take their time to stop."""

FAILED = 3
TOTALS = ("allocations", "bytes", "direct_allocations", "direct_bytes")


@dataclass(frozen=True)
class Finished:
    """How a run of the command line ended."""

    status: int
    out: str
    talk: str


def run_cli(
    arguments: Sequence[object],
    environment: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
) -> Finished:
    words = [str(argument) for argument in arguments]
    if not environment and not prefix:
        return Finished(*loaded_cli().run(words, PATIENCE))
    command = [*prefix, sys.executable, "-m", "reachscan", *words]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def scan(pid: int, *options: object) -> dict[str, Any]:
    """Return the machine report of a scan that must succeed, its invariants checked."""
    before = relatives(pid)
    done = run_cli(["scan", pid, "--json", *PATIENTLY, *options])
    assert done.status in (0, 1), f"status {done.status}: {done.talk}"
    report: dict[str, Any] = json.loads(done.out)
    leaks = report["leaks"]
    assert report["complete"] is True, report["warnings"]
    definite = leaks["allocations"] - leaks["possible_allocations"]
    assert done.status == (1 if definite else 0)
    assert_let_go(pid, before)
    return report


def assert_served_by_copy(pid: int, *reason: str) -> None:
    report = scan(pid)
    assert report["snapshot"]["method"] == "copy"
    told = str(report["snapshot"]) + str(report["warnings"])
    print(f"served by copy: {told}")
    for word in reason:
        assert word in told


def leaked(report: Mapping[str, Any]) -> Truth:
    """Return the leaked blocks of a report made with --all: address, size, 0 direct 1 indirect."""
    rows = [
        (int(block["address"], 16), block["size"], 0 if block["kind"] == "direct" else 1)
        for block in report["allocations"]
    ]
    columns: Truth = np.array(rows, dtype=np.uint64).reshape(-1, 3)
    assert len(np.unique(columns[:, 0])) == len(columns), "a block is reported twice"
    return columns[np.argsort(columns[:, 0])]


def list_heap(pid: int, method: str = "clone") -> Truth:
    """Return every live block (address, size, 0) as the sweeper enumerates them."""
    done = subprocess.run(
        [str(HELPER), "--pid", str(pid), "--method", method, "--list-heap", *PATIENTLY],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    parts: list[NDArray[np.uint64]] = []
    last = 0
    for frame in wire.frames(io.BytesIO(done.stdout)):
        last = frame.type
        assert frame.type != wire.FAILURE, wire.parse(frame)
        if frame.type == wire.LEAKS:
            columns = wire_columns.parse_leaks(frame)
            zero = np.zeros(len(columns.address), np.uint64)
            parts.append(np.stack([columns.address, columns.size, zero], axis=1))
    assert done.returncode == 0 and last == wire.FINAL, done.stderr.decode()
    rows: Truth = np.concatenate(parts) if parts else np.zeros((0, 3), np.uint64)
    return rows[np.argsort(rows[:, 0])]


def recording_of(pid: int, *options: object) -> model.Recording:
    """Return what the native helper says of a process, as its options ask."""
    done = subprocess.run(
        [str(HELPER), "--pid", str(pid), *map(str, options)],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return decode(wire.frames(io.BytesIO(done.stdout)))


def assert_let_go(pid: int, relatives_before: set[int]) -> None:
    """Nobody traces or has stopped the process, and no clone of it is about."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except OSError:  # a thread may end at any time
            continue
        assert "TracerPid:\t0\n" in status, f"thread {task.name} is still traced"
        assert "State:\tt" not in status and "State:\tT" not in status
    assert relatives(pid) <= relatives_before, "a clone was left behind"


def relatives(pid: int) -> set[int]:
    """Return the processes that have the same memory layout: forks, and left-over clones."""
    stack = _end_of_stack(pid)
    others = {int(folder.name) for folder in Path("/proc").glob("[0-9]*")} - {pid}
    return {other for other in others if stack and _end_of_stack(other) == stack}


def _end_of_stack(pid: int) -> str:
    # The place of the stack is random per program start: only a fork has the same.
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split()[0] for line in lines if line.endswith("[stack]")), "").split("-")[-1]
