"""Runs make for tests, one after another: the wheel and the installation are built in one tree."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from victims import REPOSITORY


def make(target: str, setting: str) -> None:
    """Make a target with a setting of the Makefile; wait until no other test makes one."""
    with (REPOSITORY / "build" / "making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-C", REPOSITORY, target, setting], check=True)


def make_wheel(folder: Path) -> Path:
    """Build the wheel into an empty folder, or skip the test and say what it needs."""
    path = os.pathsep.join([str(REPOSITORY / ".venv/bin"), os.environ["PATH"]])
    tools = ("make", "cmake", "ninja", "wheel", "python-zig")
    missing = [tool for tool in tools if not shutil.which(tool, path=path)]
    if missing:
        pytest.skip(f"a wheel cannot be built without {', '.join(missing)}")
    make("wheel", f"DIST={folder}")
    (built,) = folder.iterdir()
    return built
