"""Tests that leak native memory, run by pytest with the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from victims import DEADLINE

SUITE = """
import ctypes
import os
import pytest

libc = ctypes.CDLL(None)
libc.calloc.restype = None  # nobody gets the address


def leak(size):
    for _ in range(100):
        libc.calloc(1, size)


def test_clean():
    assert [bytearray(1000) for _ in range(100)]


def test_leaks():
    leak(200)


def test_nothing_new():
    os.environ["A_VARIABLE"] = "with a long text that the C library keeps"


@pytest.mark.reachscan(limit="1 MiB")
def test_may_leak():
    leak(200)


@pytest.mark.reachscan(limit="4 KiB")
def test_leaks_more_than_it_may():
    leak(200)


def test_fails_for_itself():
    leak(200)
    raise ValueError("a reason")
"""

OTHERS_LEAK = """
import ctypes
import pytest

libc = ctypes.CDLL(None)
libc.calloc.restype = None


def leak(size):
    for _ in range(100):
        libc.calloc(1, size)


@pytest.fixture
def leaky_setup():
    leak(300)


@pytest.fixture
def leaky_teardown():
    yield
    leak(400)


def test_with_setup(leaky_setup):
    pass


def test_with_teardown(leaky_teardown):
    pass


def test_after_teardown():
    pass


def test_fails():
    leak(500)
    raise ValueError("a reason")


def test_after_a_failure():
    pass


def test_is_skipped():
    leak(600)
    pytest.skip("a reason")


def test_after_a_skipped_one():
    pass


def test_leaks():
    leak(712)
"""

BECOMES_DEFINITE = """
import ctypes

libc = ctypes.CDLL(None)
libc.calloc.restype = ctypes.c_void_p
kept = []


def test_leaves_a_possible_leak():
    kept.append(libc.calloc(1, 5000))  # only the digits of a number mean it


def test_forgets_the_number():
    kept.clear()
    assert [number + 1000 for number in range(1000)]  # overwrites the freed one


def test_leaks():
    libc.calloc(1, 7000)
"""


def run(folder: Path, suite: str, *options: str) -> str:
    (folder / "test_suite.py").write_text(suite)
    plain = ("-rA", "--color=no", "-p", "reachscan.pytest_plugin")
    command = [sys.executable, "-m", "pytest", *plain, *options]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_test_that_leaks_fails_with_a_report(tmp_path: Path) -> None:
    said = run(tmp_path, SUITE, "--reachscan")
    passed = {line.rpartition("::")[2] for line in said.splitlines() if line.startswith("PASSED")}
    assert passed == {"test_clean", "test_nothing_new", "test_may_leak"}, said
    assert "bytes of native memory in" in said and "200 bytes unreachable at" in said
    assert "it may leak 4096 bytes" in said
    assert "ValueError: a reason" in said


def test_nobody_is_blamed_for_what_others_leak(tmp_path: Path) -> None:
    said = run(tmp_path, OTHERS_LEAK, "--reachscan")
    assert "2 failed, 5 passed, 1 skipped" in said, said
    # The summary at the end repeats a report, unless pytest cuts its line off.
    reports = [line for line in said.splitlines() if line.startswith("the test leaked ")]
    assert len(reports) == 1 and "712 bytes unreachable at" in said, said


def test_what_was_possible_before_a_test_is_not_its_leak(tmp_path: Path) -> None:
    said = run(tmp_path, BECOMES_DEFINITE, "--reachscan")
    assert "1 failed, 2 passed" in said, said
    assert "bytes of native memory in 1 structure" in said and "7000 bytes unreachable at" in said


def test_without_the_option_nothing_is_watched(tmp_path: Path) -> None:
    assert "1 failed, 5 passed" in run(tmp_path, SUITE)


def test_a_limit_that_is_no_size_is_refused(tmp_path: Path) -> None:
    suite = SUITE.replace("1 MiB", "much")
    said = run(tmp_path, suite, "--reachscan")
    assert "a reachscan marker has a limit" in said
    assert "INTERNALERROR" not in said and "pytest_plugin.py" not in said
    assert "PASSED" not in said
