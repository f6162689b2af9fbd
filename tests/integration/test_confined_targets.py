"""Targets that may do less than others: under seccomp filters, or without new code.

They are cloned if all that they must do themselves is allowed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from attached import Surroundings, assert_served, is_being_recorded
from conftest import StartVictim
from scans import FAILED, PATIENTLY, assert_served_by_copy, run_cli, scan
from unharmed import RELEASE, TRACK, Helper, Watched, assert_sound, last_words
from victims import build
from worlds import NOBODY, as_user, confined, need_root, public_copy, run_cli_as

SCANS = 20
SETTINGS = "depth=32"
need_mdwe = pytest.mark.skipif(RELEASE < (6, 3), reason="PR_SET_MDWE came with Linux 6.3")


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


# A filter would kill for what is done in the clone and by the middleman.
@pytest.mark.parametrize("method", ["clone", TRACK])
@pytest.mark.parametrize(
    "how",
    [pytest.param("filter", marks=need_root), pytest.param("code", marks=need_mdwe)],
)
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


@need_mdwe
def test_recorder_in_a_program_without_new_code(victim: StartVictim, tmp_path: Path) -> None:
    server = victim("serving", 3, 0, command=confined("code", "serving"))
    helper, surroundings = Helper(tmp_path), Surroundings(server.pid)
    helper.scan(server.pid, "--attach", SETTINGS, *PATIENTLY)
    assert is_being_recorded(server.pid)
    helper.scan(server.pid, "--detach", *PATIENTLY)
    surroundings.assert_same()
    assert_served(server)
