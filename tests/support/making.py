"""Runs make for tests, one after another: the wheel and the installation are built in one tree."""

from __future__ import annotations

import fcntl
import subprocess

from victims import REPOSITORY


def make(target: str, setting: str) -> None:
    """Make a target with a setting of the Makefile; wait until no other test makes one."""
    with (REPOSITORY / "build" / "making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-C", REPOSITORY, target, setting], check=True)
