"""The wheel in systems that have no compiler, installed by pip, pipx and uv.

Only with REACHSCAN_SYSTEMS=1. Needs root, debootstrap, a mirror of Debian and PyPI.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import bare_systems
import pytest
from conftest import StartVictim
from glibc_suites import UnavailableError
from making import make_wheel
from scans import scan
from victims import build, wait_blocked
from worlds import need_root, public_folder

from reachscan import __version__

pytestmark = [
    need_root,
    pytest.mark.skipif(
        not os.environ.get("REACHSCAN_SYSTEMS"),
        reason="REACHSCAN_SYSTEMS=1 makes systems by debootstrap and installs the wheel in them",
    ),
]
INSTALLERS = {
    "pip": "python3 -m venv own; own/bin/pip install $wheel; mkdir .local; ln -s ../own/bin .local",
    "pipx": "command -v pipx || { python3 -m venv tool; tool/bin/pip install pipx; }\n"
    "PATH=$PATH:tool/bin; pipx install $wheel",
    "uv": "python3 -m venv tool; tool/bin/pip install uv; tool/bin/uv tool install $wheel",
}
LEAKS = 1
"""What `reachscan PID` ends with if there are some."""
INSTALLED = ".local/bin/reachscan"
OLD = "bullseye"
"""Its Python is 3.9."""
NEW = [suite for suite in bare_systems.PACKAGES if suite != OLD]
IDLE_PYTHON = ("python3", "-c", "import json; print(1, flush=True); input()")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("dist"))


def system(suite: str) -> Path:
    """Return the root of a system without a compiler that reaches PyPI, or skip the test."""
    try:
        root = bare_systems.system(suite)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    found = [name for name in bare_systems.COMPILERS if (root / "usr/bin" / name).exists()]
    assert not found, f"{suite} has compilers: {found}"
    return root


def installed(root: Path, home: Path, installer: str, wheel: Path) -> tuple[int, str]:
    """Install the wheel; return the installer's exit status and all that it said."""
    said_in(root, home, "python3 -m venv probe")
    said = bare_systems.run_in(root, home, "cd; probe/bin/pip download --no-deps click")
    if said.returncode != 0:
        pytest.skip(f"PyPI cannot be reached from {root.name}: {said.stderr.strip()[-300:]}")
    shutil.copy(wheel, home)
    done = bare_systems.run_in(root, home, f"cd; wheel=./{wheel.name}; {INSTALLERS[installer]}")
    return done.returncode, done.stdout + done.stderr


def said_in(root: Path, home: Path, script: str) -> str:
    done = bare_systems.run_in(root, home, f"cd; {script}")
    assert (done.returncode, done.stderr) in ((0, ""), (LEAKS, "")), done.stderr
    return done.stdout


@pytest.mark.parametrize("installer", INSTALLERS)
@pytest.mark.parametrize("suite", NEW)
def test_it_scans_where_there_is_no_compiler(
    victim: StartVictim, wheel: Path, suite: str, installer: str
) -> None:
    root = system(suite)
    with public_folder() as home:
        status, talk = installed(root, home, installer, wheel)
        assert status == 0, talk
        assert said_in(root, home, f"{INSTALLED} --version") == f"reachscan {__version__}\n"

        shutil.copy(build("leaky_sessions", ["-static"]), home / "program")
        words = bare_systems.entering(root, home, f"{bare_systems.SHARED}/program")
        target = victim("leaky_sessions", "once", command=words)
        there = json.loads(said_in(root, home, f"{INSTALLED} {target.pid} --json"))
        assert there["leaks"] == scan(target.pid)["leaks"]
        assert there["leaks"]["direct_allocations"] > 0

        options = said_in(root, home, f"{python_of(home)} -m reachscan.config --libs")
        [folder] = re.findall(r"-L(\S+)", options)
        assert said_in(root, home, f"ls {folder}/libreachscan.so").startswith(folder)


def python_of(home: Path) -> str:
    """Return the Python for which the command was installed."""
    command = home / INSTALLED
    while command.is_symlink():  # as they lead from home to home in the system
        link = str(command.readlink())
        command = (
            home / Path(link).relative_to(bare_systems.SHARED)
            if link[0] == "/"
            else (command.parent / link)
        )
    return command.read_text().splitlines()[0].removeprefix("#!")


@pytest.mark.parametrize("suite", NEW)
def test_the_python_of_the_system_leaks_nothing(wheel: Path, suite: str) -> None:
    root = system(suite)
    with public_folder() as home:
        status, talk = installed(root, home, "pip", wheel)
        assert status == 0, talk
        with subprocess.Popen(
            bare_systems.entering(root, home, *IDLE_PYTHON),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as python:
            assert python.stdout is not None
            assert python.stdout.readline() == b"1\n"
            wait_blocked(python.pid)
            there = json.loads(said_in(root, home, f"{INSTALLED} {python.pid} --json"))
            python.communicate(b"\n")
        assert there["complete"] is True
        assert there["leaks"]["allocations"] == there["leaks"]["possible_allocations"]
        assert python.returncode == 0


@pytest.mark.parametrize("installer", INSTALLERS)
def test_an_older_python_is_refused_with_the_one_it_needs(wheel: Path, installer: str) -> None:
    root = system(OLD)
    with public_folder() as home:
        status, talk = installed(root, home, installer, wheel)
    assert status != 0
    reasons = [line for line in talk.splitlines() if "3.9" in line and ">=3.10" in line]
    assert reasons, talk
