"""What `make install` puts into a prefix: programs find it by pkg-config and by CMake."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from making import make
from victims import need

PROGRAM = """
#include <stdlib.h>
void* volatile kept;
int main(void) {
  kept = malloc(1000);
  kept = 0;
  return 0;
}
"""
"""It calls nothing of the library, which obeys the environment nevertheless."""
LEAKS = 23
PROJECT = """
cmake_minimum_required(VERSION 3.20)
project(program LANGUAGES C)
find_package(Reachscan 0.1 REQUIRED)
foreach(form reachscan reachscan-static)
  add_executable(with-${form} program.c)
  target_link_libraries(with-${form} PRIVATE Reachscan::${form})
endforeach()
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed (pip install cmake)")
    make("install", f"PREFIX={folder}")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "program.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    return tmp_path


def check(program: Path, environment: dict[str, str]) -> None:
    assert subprocess.run([program], env=environment, check=False).returncode == 0
    environment = {**environment, "REACHSCAN_AT_EXIT": "1"}
    assert subprocess.run([program], env=environment, check=False).returncode == LEAKS


def test_pkg_config(prefix: Path, source: Path) -> None:
    tool = need("pkg-config", "pkgconf")
    flags = subprocess.run(
        [tool, "--cflags", "--libs", "reachscan"],
        env={**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    program = source / "program"
    subprocess.run(["gcc", source / "program.c", *flags, "-o", program], check=True)
    check(program, {"LD_LIBRARY_PATH": str(prefix / "lib")})


def test_cmake_package(prefix: Path, source: Path) -> None:
    build = source / "build"
    configure = ["cmake", "-S", str(source), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix}"]
    subprocess.run([*configure, "-DCMAKE_C_COMPILER=gcc"], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    for form in ("reachscan", "reachscan-static"):
        check(build / f"with-{form}", {})
