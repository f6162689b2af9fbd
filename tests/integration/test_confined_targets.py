"""Targets that may do less than others: under seccomp filters, or without new code.

They are cloned if all that they must do themselves is allowed.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest
from attached import Surroundings, assert_served, functions, is_being_recorded, report_of_hunt
from conftest import StartVictim
from scans import FAILED, PATIENTLY, assert_served_by_copy, run_cli, scan
from unharmed import RELEASE, TRACK, Helper, Watched, assert_sound, last_words
from victims import build
from worlds import NOBODY, as_user, confined, need_root, public_copy, run_cli_as

SCANS = 20
SETTINGS = "depth=32"
CONFINED = [
    pytest.param("filter", marks=need_root),
    pytest.param(
        "code",
        marks=pytest.mark.skipif(RELEASE < (6, 3), reason="PR_SET_MDWE came with Linux 6.3"),
    ),
]


@pytest.mark.parametrize("how", ["kill", "errno", "trap", "log", "strict", "waiting"])
def test_filter_that_forbids_clones(victim: StartVictim, how: str) -> None:
    target = victim("filtered", how)
    assert_served_by_copy(target.pid, "seccomp")
    done = run_cli([target.pid, "--method", "clone"])
    assert done.status == FAILED and "seccomp" in done.talk and done.talk.count("\n") == 1


@need_root
def test_filter_of_one_thread(victim: StartVictim) -> None:
    """Another thread makes the clone."""
    target = victim("filtered", "thread")
    assert scan(target.pid)["snapshot"]["method"] == "clone"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="not known on other processors")
@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
@pytest.mark.parametrize("how", ["nanosleep", "poll", "futex"])
def test_filter_that_forbids_to_go_on(
    victim: StartVictim, tmp_path: Path, how: str, method: str
) -> None:
    """The kernel continues an interrupted sleep by a call that the program never makes itself."""
    target = victim("sleeps_filtered", how)
    helper = Helper(tmp_path)
    for _ in range(SCANS):
        ending = helper.run(target.pid, "--method", method)
        assert ending.status == 0 or ending.code == "clone-refused", ending
    target.quit()


# A filter would kill for what is done in the clone and by the middleman.
@pytest.mark.parametrize("method", ["clone", TRACK])
@pytest.mark.parametrize("how", CONFINED)
def test_confined_program_is_cloned(
    victim: StartVictim, tmp_path: Path, how: str, method: str
) -> None:
    target = victim("checker", command=confined(how, "checker"))
    watched = Watched(target.pid, Helper(tmp_path))
    for _ in range(SCANS):
        assert watched.helper.scan(target.pid, "--method", method).method == method
        watched.assert_unharmed()
    words = last_words(target)
    print(words)
    assert_sound(words)


@need_root
def test_only_root_may_read_a_filter(victim: StartVictim) -> None:
    with public_copy(build("checker")) as program, public_copy(build("confined")) as starter:
        command = as_user(NOBODY, str(starter), "filter", str(program))
        target = victim("checker", command=command)
        done = run_cli_as(NOBODY, target.pid, "--method", "clone")
        assert done.status == FAILED and "seccomp" in done.talk and done.talk.count("\n") == 1
        done = run_cli_as(NOBODY, target.pid, "--contents", 0)
        assert done.status in (0, 1) and "copy" in done.out, done
        assert_sound(last_words(target))


@pytest.mark.parametrize("how", CONFINED)
def test_confined_program_is_recorded(victim: StartVictim, how: str) -> None:
    server = victim("serving", 2, 1000, command=confined(how, "serving"))
    surroundings = Surroundings(server.pid)
    report = report_of_hunt(server)
    for group in report["groups"]:
        assert functions(report, group)[:3] == ["lose_session", "answer", "run"]
    surroundings.assert_same()
    assert_served(server)


# The recorder makes no system call from then on: any but the program's own would end it.
@pytest.mark.parametrize("how", ["prctl", "syscall"])
def test_recorded_program_confines_itself(how: str) -> None:
    command = [sys.executable, "-m", "reachscan", "run", "--"]
    command += [str(build("confines_itself")), how]
    done = subprocess.run(command, input="quit", capture_output=True, text=True, check=False)
    print(done.stderr)
    assert done.returncode == FAILED and done.stdout.endswith("done\n")
    assert "seccomp filter" in done.stderr


@pytest.mark.parametrize("how", ["prctl", "syscall"])
def test_attached_program_confines_itself(victim: StartVictim, tmp_path: Path, how: str) -> None:
    target = victim("confines_itself", how)
    Helper(tmp_path).scan(target.pid, "--attach", SETTINGS, *PATIENTLY)
    assert is_being_recorded(target.pid)
    target.quit()
