"""Filters of `reachscan run` and `attach`: which modules and threads are recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import victims
from conftest import StartVictim
from scans import run_cli, scan

MAIN, DUPLICATED, OPERATOR, WORKER, IN_LIBRARY, OPERATOR_IN_LIBRARY, IDLE = range(3000, 3700, 100)
"""Requested sizes of the blocks that the fixture loses."""


def usable(size: int) -> int:
    return (size + 8 + 15) // 16 * 16 - 8


def library_and_program(folder: Path) -> tuple[Path, Path]:
    library = folder / "plugin.so"
    library.symlink_to(victims.build("chosen_calls", ("-shared", "-fPIC", "-DLIBRARY", "-g")))
    return library, victims.build("chosen_calls", ("-pthread", "-ldl", "-g"))


def assert_recorded(report: dict[str, Any], recorded: set[int]) -> None:
    groups = report["groups"]
    known = {usable(size) for size in range(MAIN, IDLE + 100, 100)}
    assert {g["size"] for g in groups} >= known
    found = {g["size"] for g in groups if g["stack"] is not None and g["size"] in known}
    assert found == {usable(size) for size in recorded}


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        (("--module", r"/chosen_calls$"), {MAIN, OPERATOR, WORKER, IDLE}),
        (("--module", r"/plug[a-z]+\.so$"), {IN_LIBRARY, OPERATOR_IN_LIBRARY}),
        (("--module", r"/libc\.so"), {DUPLICATED}),
        (("--module", r"/plugin|libc\.so"), {IN_LIBRARY, OPERATOR_IN_LIBRARY, DUPLICATED}),
        (("--thread", r"^worker-[0-9]+$"), {WORKER}),
        (("--thread", r"^idle$", "--module", "/chosen"), {IDLE}),
        (("--thread", r"nobody"), set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_only_what_is_chosen_has_a_stack(
    options: Sequence[str], recorded: set[int], tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    library, program = library_and_program(tmp_path)
    run = [sys.executable, "-m", "reachscan", "run", "--json", "-o", str(file), *options]
    done = subprocess.run([*run, "--", program, library], check=False)
    assert done.returncode == 1
    assert_recorded(json.loads(file.read_text()), recorded)


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        (("--module", r"/plug[a-z]+\.so$"), {IN_LIBRARY, OPERATOR_IN_LIBRARY}),
        (("--thread", r"^worker-[0-9]+$"), {WORKER}),
    ],
    ids=["module", "thread"],
)
def test_filters_of_attach(
    victim: StartVictim, options: Sequence[str], recorded: set[int], tmp_path: Path
) -> None:
    library, program = library_and_program(tmp_path)
    target = victim("chosen_calls", library, "wait", command=[str(program)])
    assert run_cli(["attach", target.pid, *options]).status == 0
    assert target.process.stdin
    target.process.stdin.write(b"\n")
    target.process.stdin.flush()
    assert target.read_line() == "done"
    assert_recorded(scan(target.pid), recorded)
