"""Provides what a scene runs: Debian packages and packages of PyPI, if installing is allowed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

ALLOWED = "REACHSCAN_INSTALL"
"""The variable of the environment that allows to install."""

SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/games"
_APT_GET = ("apt-get", "install", "-qy", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300")
_COMPLETE = ("installed", "triggers-awaited", "triggers-pending")
VENVS = Path(__file__).resolve().parents[2] / "build" / "venvs"


def provide(program: str, package: str) -> str | None:
    """Return the path of a program; installs its Debian package if that is allowed."""
    path = shutil.which(program, path=SEARCH_PATH)
    if path is None and _may_install():
        _install([*_APT_GET, *package.split()], package)
        path = shutil.which(program, path=SEARCH_PATH)
    return path


def provide_all(packages: str) -> None:
    """Install those Debian packages that are missing, or skip what needs them."""
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"]
    said = subprocess.run([*query, *packages.split()], capture_output=True, text=True, check=False)
    states = dict(line.split() for line in said.stdout.splitlines())
    # What waits for triggers is complete; it is so while others are being installed.
    there = {package for package, state in states.items() if state in _COMPLETE}
    missing = [package for package in packages.split() if package not in there]
    if missing and not _may_install():
        pytest.skip(f"not installed: Debian packages {' '.join(missing)}")
    if missing:
        _install([*_APT_GET, *missing], " ".join(missing))


def _may_install() -> bool:
    return bool(os.environ.get(ALLOWED)) and os.geteuid() == 0


def python_with(*packages: str) -> str:
    """Return an interpreter that has packages of PyPI, or skip what needs them."""
    folder = VENVS / hashlib.sha256(repr((sys.version, packages)).encode()).hexdigest()[:16]
    python, complete = folder / "bin" / "python", folder / "complete"
    if complete.exists():
        return str(python)
    if not os.environ.get(ALLOWED):
        pytest.skip(f"{', '.join(packages)} of PyPI: set {ALLOWED}=1 to install it in {VENVS}")
    shutil.rmtree(folder, ignore_errors=True)
    _install([sys.executable, "-m", "venv", str(folder)], "a virtual environment")
    _install([str(python), "-m", "pip", "install", "-q", *packages], ", ".join(packages))
    complete.touch()
    return str(python)


def wheel_of(package: str, python: str) -> Path:
    """Return the unpacked files of a package of PyPI, as made for a release of Python, or skip."""
    folder = VENVS / hashlib.sha256(repr((package, python)).encode()).hexdigest()[:16]
    complete = folder / "complete"
    if complete.exists():
        return folder
    if not os.environ.get(ALLOWED):
        pytest.skip(f"{package} of PyPI: set {ALLOWED}=1 to fetch it into {VENVS}")
    shutil.rmtree(folder, ignore_errors=True)
    options = ("--no-deps", "--only-binary", ":all:", "--python-version", python)
    platform = ("--platform", "manylinux2014_x86_64")
    pip = [sys.executable, "-m", "pip", "download", "-q", "-d", str(folder)]
    _install([*pip, *options, *platform, package], package)
    [wheel] = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder, "zip")
    wheel.unlink()
    complete.touch()
    return folder


def _install(command: Sequence[str], what: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _alarm_put_off():
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=900, env=environment
        )
    if done.returncode != 0:
        pytest.skip(f"{what} cannot be installed: {' '.join(done.stderr.split())[-200:]}")


@contextmanager
def _alarm_put_off() -> Iterator[None]:
    """Do not count the time against what a scene may take."""
    left = signal.alarm(0)
    try:
        yield
    finally:
        signal.alarm(left)
