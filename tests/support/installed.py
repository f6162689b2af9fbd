"""Installs the wheel in a system that has no compiler, and runs it there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import bare_systems
import pytest
from victims import wait_blocked

need_systems = pytest.mark.skipif(
    not os.environ.get("REACHSCAN_SYSTEMS"),
    reason="REACHSCAN_SYSTEMS=1 makes systems by debootstrap and installs the wheel in them",
)
INSTALLERS = {
    "pip": "python3 -m venv own; own/bin/pip install $wheel; mkdir .local; ln -s ../own/bin .local",
    "pipx": "command -v pipx || { python3 -m venv tool; tool/bin/pip install pipx; }\n"
    "PATH=$PATH:tool/bin; pipx install $wheel",
    "uv": "python3 -m venv tool; tool/bin/pip install uv; tool/bin/uv tool install $wheel",
}
COMMAND = ".local/bin/reachscan"
LEAKS = 1
"""What `reachscan PID` ends with if there are some."""
_IDLE_PYTHON = ("python3", "-c", "import json; print(1, flush=True); input()")


def install(root: Path, home: Path, installer: str, wheel: str, settings: str = "") -> None:
    """Install a wheel that lies at home; settings are shell commands to begin with."""
    assert not [name for name in bare_systems.COMPILERS if (root / "usr/bin" / name).exists()]
    script = f"cd; wheel=./{wheel}; {settings}\n{INSTALLERS[installer]}"
    done = bare_systems.run_in(root, home, script)
    assert done.returncode == 0, done.stdout + done.stderr


def said_in(root: Path, home: Path, script: str) -> str:
    """Return what a script prints that is run at home and has nothing to complain about."""
    done = bare_systems.run_in(root, home, f"cd; {script}")
    assert (done.returncode, done.stderr) in ((0, ""), (LEAKS, "")), done.stderr
    return done.stdout


def scan_in(root: Path, home: Path, pid: int, options: str = "") -> dict[str, Any]:
    """Return the machine report of the command that is installed at home."""
    report: dict[str, Any] = json.loads(said_in(root, home, f"{COMMAND} {pid} {options} --json"))
    return report


def check_idle_python(root: Path, home: Path) -> None:
    """Scan the system's own Python, which has lost nothing, and see that it goes on."""
    with subprocess.Popen(
        bare_systems.entering(root, home, *_IDLE_PYTHON),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as python:
        assert python.stdout is not None
        assert python.stdout.readline() == b"1\n"
        wait_blocked(python.pid)
        there = scan_in(root, home, python.pid)
        python.communicate(b"\n")
    assert there["complete"] is True
    assert there["leaks"]["allocations"] == there["leaks"]["possible_allocations"]
    assert python.returncode == 0
