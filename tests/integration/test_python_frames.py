"""Python functions in stacks: a program knows which of its lines led to each block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import victims
from attached import report_of_hunt
from conftest import StartVictim

PROGRAM = victims.PROGRAMS / "python_leaks.py"
SERVER = victims.PROGRAMS / "python_server.py"
WITHOUT_LOCK = 3030
INCLUDE = "import sysconfig; print(sysconfig.get_path('include'))"
ALL = "REACHSCAN_ALL_PYTHONS" in os.environ


def places(version: str) -> Iterator[Path]:
    """Yield where a Python of that version may be."""
    for folder in os.environ["PATH"].split(":"):
        yield Path(folder) / f"python{version}"
    yield from Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python{version}")


def interpreter(version: str) -> tuple[Path, str]:
    """Return a Python, and where its headers are; or skip the test."""
    for path in filter(Path.exists, places(version)):
        done = subprocess.run([path, "-c", INCLUDE], capture_output=True, text=True, check=False)
        if done.returncode == 0 and Path(done.stdout.strip(), "Python.h").exists():
            return path, done.stdout.strip()
    pytest.skip(f"there is no python{version} with headers on this machine")


def python_with_extension(version: str, folder: Path) -> Path:
    """Return a Python that finds the extension in a folder."""
    python, include = interpreter(version)
    flags = ("-shared", "-fPIC", f"-isystem{include}")
    (folder / "python_extension.so").symlink_to(victims.build("python_extension", flags))
    return python


def recorded(command: Sequence[object], folder: Path) -> tuple[str, Any]:
    """Return what a command says, and the report on it."""
    file = folder / "report.json"
    run = [sys.executable, "-m", "reachscan", "run", "--json", "-o", str(file), "--limit", "1000"]
    done = subprocess.run(
        [*run, "--sizes", "3000-3030", "--depth", "128", "--", *map(str, command)],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stdout, json.loads(file.read_text())


def python_frames(report: Any, stack: int) -> list[list[Any]]:
    """Return name, file and line of those that are Python's, the innermost first."""
    return [
        [frame["function"].rpartition(".")[2], frame["file"], frame["line"]]
        for frame in report["stacks"][stack]
        if frame["pc"] == "0x0"
    ]


@pytest.mark.parametrize(
    "version", [f"3.{minor}" for minor in range(9, 15) if minor in (9, 11, 13) or ALL]
)
def test_stacks_name_the_lines_that_led_there(version: str, tmp_path: Path) -> None:
    python = python_with_extension(version, tmp_path)
    said, report = recorded([python, PROGRAM], tmp_path)
    expected = sorted(json.loads(said).values())
    stacks = [
        g for g in report["groups"] for _ in range(g["allocations"]) if g["stack"] is not None
    ]
    found = sorted(python_frames(report, group["stack"]) for group in stacks)
    assert found == sorted([*expected, []]), "one was allocated without the lock"
    assert not [w for w in report["warnings"] if w["code"] == "python-frames-missing"]
    assert report["stacks"][stacks[0]["stack"]][0]["function"] == "leak_bytes"


def test_a_version_that_is_not_known_is_told(tmp_path: Path) -> None:
    program = victims.build("python_of_the_future", ("-rdynamic",))
    _, report = recorded([program], tmp_path)
    (warning,) = report["warnings"]
    assert warning["code"] == "python-frames-missing"
    assert "Python 3.255" in warning["message"]
    assert python_frames(report, report["groups"][0]["stack"]) == []


def test_where_names_the_line_of_python(victim: StartVictim, tmp_path: Path) -> None:
    python = python_with_extension(f"3.{sys.version_info.minor}", tmp_path)
    command, environment = [str(python), str(SERVER)], {"PYTHONPATH": str(tmp_path)}
    server = victim("python_server", 3000, command=command, environment=environment)
    report = report_of_hunt(server)
    lines = SERVER.read_text().splitlines()
    for group in report["groups"]:
        (opens, opens_file, opens_line), (serves, _, serves_line), *_ = python_frames(
            report, group["stack"]
        )
        assert (opens, opens_file, serves) == ("open", str(SERVER), "serve")
        assert "python_extension.leak" in lines[opens_line - 1]
        assert "sessions.open" in lines[serves_line - 1]
    assert report["leaks"]["allocations"] > 0
