"""Structs that blocks could be: shown in every format, and read at length only if asked for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import run_cli
from victims import CXX_FLAGS, PROGRAMS

USER = "(anonymous namespace)::User"
KEY = "88: heap | value | value | value"


@pytest.fixture
def pid(victim: StartVictim, tmp_path: Path) -> int:
    """Return a process whose program has debug information of many headers."""
    path = tmp_path / "recycled_kinds"
    flags = [flag for flag in CXX_FLAGS if flag != "-s"]
    source = PROGRAMS / "recycled_kinds.cpp"
    flags += ["-g", "-include", "regex", "-fno-eliminate-unused-debug-types", "-pthread"]
    subprocess.run(["g++", *flags, source, "-o", path], check=True)
    return victim("", 300, command=[str(path)]).pid


def test_they_are_in_every_format(pid: int, tmp_path: Path) -> None:
    text = run_cli([pid, "--candidates"]).out
    assert f"perhaps {USER}" in text
    report = json.loads(run_cli([pid, "--candidates", "--json"]).out)
    (users,) = (group for group in report["groups"] if group["key"] == KEY)
    assert users["candidates"][0] == USER
    for command in ([pid], ["heap", pid]):
        logged = run_cli([*command, "--candidates", "--format", "logfmt"]).out
        assert f'candidates="{USER}' in logged
    page = tmp_path / "page.html"
    run_cli([pid, "--candidates", "--format", "html", "-o", page])
    assert f'"candidates":["{USER}"' in page.read_text()


def test_nobody_waits_for_them_who_has_not_asked(pid: int) -> None:
    report = json.loads(run_cli([pid, "--json"]).out)
    assert [group["candidates"] for group in report["groups"]] == [[]] * len(report["groups"])
    assert report["warnings"] == []
