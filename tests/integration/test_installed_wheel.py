"""The wheel in systems that have no compiler, installed by pip, pipx and uv.

Only with REACHSCAN_SYSTEMS=1. Needs root, debootstrap, a mirror of Debian and PyPI.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import bare_systems
import pytest
from conftest import StartVictim
from glibc_suites import UnavailableError
from installed import (
    COMMAND,
    INSTALLERS,
    check_idle_python,
    install,
    need_systems,
    said_in,
    scan_in,
)
from making import make_wheel
from scans import scan
from victims import build
from worlds import need_root, public_folder

from reachscan import __version__

pytestmark = [need_root, need_systems]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module", params=bare_systems.PACKAGES)
def system(request: pytest.FixtureRequest) -> Path:
    """Return the root of a system without a compiler that reaches PyPI, or skip the test."""
    try:
        root = bare_systems.system(request.param)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with public_folder() as home:
        fetch = "cd; python3 -m venv probe; probe/bin/pip download --no-deps click"
        said = bare_systems.run_in(root, home, fetch)
    if said.returncode != 0:
        pytest.skip(f"PyPI cannot be reached from {root.name}: {said.stderr.strip()[-300:]}")
    return root


@pytest.mark.parametrize("installer", INSTALLERS)
def test_it_scans_where_there_is_no_compiler(
    victim: StartVictim, wheel: Path, system: Path, installer: str
) -> None:
    with public_folder() as home:
        shutil.copy(wheel, home)
        install(system, home, installer, wheel.name)
        assert said_in(system, home, f"{COMMAND} --version") == f"reachscan {__version__}\n"

        shutil.copy(build("leaky_sessions", ["-static"]), home / "program")
        words = bare_systems.entering(system, home, f"{bare_systems.SHARED}/program")
        target = victim("leaky_sessions", "once", command=words)
        there = scan_in(system, home, target.pid)
        assert there["leaks"] == scan(target.pid)["leaks"]
        assert there["leaks"]["direct_allocations"] > 0

        options = said_in(system, home, f"{python_of(home)} -m reachscan.config --libs")
        [folder] = re.findall(r"-L(\S+)", options)
        assert said_in(system, home, f"ls {folder}/libreachscan.so").startswith(folder)
        check_idle_python(system, home)


def python_of(home: Path) -> str:
    """Return the Python for which the command was installed."""
    command = home / COMMAND
    while command.is_symlink():  # as they lead from home to home in the system
        link = str(command.readlink())
        command = (
            home / Path(link).relative_to(bare_systems.SHARED)
            if link[0] == "/"
            else (command.parent / link)
        )
    return command.read_text().splitlines()[0].removeprefix("#!")
