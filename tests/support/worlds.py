"""Starts fixture programs as other users, in other roots and namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from scans import Finished
from unharmed import Helper
from victims import REPOSITORY, build, need

NOBODY = 61000 + os.getpid() % 4000
"""A user who runs nothing else."""
OTHER = NOBODY + 4000


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that every user can look into; pytest's own are private."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@contextmanager
def public_copy(program: Path) -> Iterator[Path]:
    with public_folder() as folder:
        copy = folder / program.name
        shutil.copy(program, copy)
        copy.chmod(0o755)
        yield copy


def as_user(user: int, *command: str) -> list[str]:
    """Return the command that runs another one as that user, with no rights beyond."""
    setpriv = need("setpriv", "util-linux")
    return [setpriv, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *command]


def confined(how: str, program: str) -> list[str]:
    """Return the command that runs a fixture program so that it may do less than others."""
    return [str(build("confined")), how, str(build(program))]


def libraries(program: Path) -> list[Path]:
    """Return the shared libraries that a program needs, the loader included."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    words = [word for word in done.stdout.split() if word.startswith("/")]
    return [Path(word) for word in words]


def make_root(folder: Path, program: Path) -> None:
    """Fill a folder so that the program can run in it as `/program`, after a chroot."""
    for source in libraries(program):
        place = folder / source.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
    shutil.copy(program, folder / "program")


def only_descendant(pid: int) -> int:
    """Return the last in a line of only children."""
    while True:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if len(found) != 1:
            return pid
        pid = int(found[0])


def must_work(command: Sequence[str], what: str) -> None:
    """Skip the test, saying why, if a command that prepares for it does not work here."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{what} cannot be made here: {done.stderr.strip() or done.returncode}")


# Everything is loaded first: whom we become may not be able to read this Python's files.
CLI_AS_USER = """
import encodings.unicode_escape, encodings.utf_8_sig, importlib, os, pkgutil, sys
import numpy.ma  # which numpy imports when something first needs it
import reachscan
from reachscan.cli.main import main
for module in pkgutil.walk_packages(reachscan.__path__, "reachscan."):
    # One of two libraries is there, depending on the version of Python; that file needs the other.
    if not module.name.endswith(("__main__", "itanium")):
        importlib.import_module(module.name)
user = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(user); os.setuid(user)
main(sys.argv[1:])
"""

need_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def run_cli_as(user: int, *arguments: object) -> Finished:
    with public_folder() as folder:
        helper = Helper(folder)
        helper.path.chmod(0o755)
        command = [sys.executable, "-c", CLI_AS_USER, str(user), *map(str, arguments)]
        environment = {**os.environ, "REACHSCAN_HELPER": str(helper.path)}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
    return Finished(done.returncode, done.stdout, done.stderr)
