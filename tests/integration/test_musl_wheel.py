"""The wheel where musl is the only C library, without a compiler, installed by pip, pipx and uv.

Only with REACHSCAN_SYSTEMS=1. Needs root, debootstrap, a mirror of Debian, PyPI and musl-tools.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import bare_systems
import musl_system
import pytest
from conftest import StartVictim
from glibc_suites import UnavailableError
from installed import INSTALLERS, check_idle_python, install, need_systems, scan_in
from making import make_wheel
from test_leak_graph import assert_same_leaks
from test_musl import KERNEL_HEADERS
from victims import build, need, read_truth
from worlds import need_root, public_folder

pytestmark = [need_root, need_systems]
OFFLINE = "export PIP_NO_INDEX=1 PIP_FIND_LINKS=/mnt/wheels UV_FIND_LINKS=/mnt/wheels UV_OFFLINE=1"
"""Its Python has no ssl."""


@pytest.fixture(scope="module")
def system() -> Path:
    try:
        return musl_system.system()
    except UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel, and those that PyPI has for musl of all that it needs."""
    folder = tmp_path_factory.mktemp("wheels")
    wheel = make_wheel(folder)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    fitting = ["--only-binary=:all:", f"--python-version={musl_system.PYTHON}"]
    platforms = [f"--platform={tag}" for tag in musl_system.TAGS]
    wanted = [str(wheel), "pip", "pipx", "setuptools", "uv"]
    done = subprocess.run(
        [*command, *fitting, *platforms, *wanted], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("installer", INSTALLERS)
def test_it_scans_where_there_is_only_musl(
    victim: StartVictim, system: Path, wheels: Path, installer: str
) -> None:
    with public_folder() as home:
        shutil.copytree(wheels, home / "wheels")
        [wheel] = (home / "wheels").glob("reachscan-*.whl")
        install(system, home, installer, f"wheels/{wheel.name}", OFFLINE)

        compiler = need("musl-gcc", "musl-tools")
        shutil.copy(build("leak_graph", KERNEL_HEADERS, compiler), home / "program")
        words = bare_systems.entering(system, home, f"{bare_systems.SHARED}/program")
        truth = f"{bare_systems.SHARED}/truth"
        target = victim("leak_graph", truth, 2000, 50, command=words)
        there = scan_in(system, home, target.pid, "--all --limit 1000000")
        assert_same_leaks(there, read_truth(home / "truth"))
        assert there["target"]["allocators"] == ["musl"]
        check_idle_python(system, home)
