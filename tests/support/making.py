"""Runs make for tests, one after another: the wheel and the installation are built in one tree."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from victims import REPOSITORY

SMALL = "REACHSCAN_SMALL" in os.environ
"""Whether wheels have helpers of less than a megabyte, which take some ten minutes to build."""


def make(target: str, *settings: str) -> None:
    """Make a target with settings of the Makefile; wait until no other test makes one."""
    with (REPOSITORY / "build" / "making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-C", REPOSITORY, target, *settings], check=True)


def make_wheel(folder: Path) -> Path:
    """Build the wheel into an empty folder, or skip the test and say what it needs."""
    path = os.pathsep.join([str(REPOSITORY / ".venv/bin"), os.environ["PATH"]])
    tools = ("make", "cmake", "ninja", "wheel")
    missing = [tool for tool in tools if not shutil.which(tool, path=path)]
    if missing:
        pytest.skip(f"a wheel cannot be built without {', '.join(missing)}")
    make("wheel", f"DIST={folder}", *["SMALL=1"] * SMALL)
    (built,) = folder.iterdir()
    return built
