"""Which process a name means."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from victims import build, running

from reachscan import errors
from reachscan.capture import processes


def test_numbers_are_ids() -> None:
    assert processes.resolve("4711") == 4711


def test_a_unique_name_is_found(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.resolve(f"nap{os.getpid()}") == sleeper.pid


def test_an_ambiguous_name_lists_its_processes(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with subprocess.Popen([tmp_path / f"nap{os.getpid()}", "1000"]) as other:
        with pytest.raises(errors.AmbiguousNameError) as caught:
            processes.resolve(f"nap{os.getpid()}")
        other.kill()
    assert f"reachscan nap{os.getpid()} --all-processes" in caught.value.next_step
    rows = [line.split() for line in caught.value.details]
    assert {row[0] for row in rows} == {"PID", str(sleeper.pid), str(other.pid)}


@pytest.mark.parametrize(("count", "rest"), [(8, []), (9, ["and 1 more"])])
def test_of_many_processes_the_first_are_listed(
    tmp_path: Path, count: int, rest: list[str]
) -> None:
    shutil.copy("/usr/bin/sleep", tmp_path / f"nap{count}-{os.getpid()}")
    with ExitStack() as stack:
        for _ in range(count):
            other = stack.enter_context(subprocess.Popen([next(tmp_path.iterdir()), "1000"]))
            stack.callback(other.kill)
        with pytest.raises(errors.AmbiguousNameError) as caught:
            processes.resolve(f"nap{count}-{os.getpid()}")
    _, *lines = caught.value.details
    assert [line.strip() for line in lines[8:]] == rest
    assert all(line.split()[0].isdigit() for line in lines[:8])


def test_the_dead_have_no_name(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with subprocess.Popen([tmp_path / f"nap{os.getpid()}", "0"]) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert processes.resolve(f"nap{os.getpid()}") == sleeper.pid


@pytest.mark.parametrize("name", ["no such program", "", "-1", "1.5", "\N{SUPERSCRIPT TWO}"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(errors.NoSuchProcessError):
        processes.resolve(name)


def test_a_name_in_no_encoding_is_written_out() -> None:
    with pytest.raises(
        errors.NoSuchProcessError, match=r"'\\x1b\\xff\N{LATIN SMALL LETTER A WITH DIAERESIS}'"
    ):
        processes.resolve("\x1b\udcff\N{LATIN SMALL LETTER A WITH DIAERESIS}")


def test_we_are_not_looked_for() -> None:
    own_name = Path("/proc/self/comm").read_text().strip()
    with suppress(errors.NoSuchProcessError):  # if nobody else is called so
        assert os.getpid() not in processes.find(own_name)


def test_a_command_line_without_end() -> None:
    size = 1 << 28
    with running([str(build("long_command")), str(size)]) as victim:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert processes.resolve("long_command_is_long") == victim.pid
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < size >> 12, f"{grown} KiB were taken"


def start_as(name: str, program: Path) -> subprocess.Popen[bytes]:
    """Start a program that calls itself something else, as servers do."""
    return subprocess.Popen([name, "1000"], executable=program)


@pytest.mark.parametrize("said", ["server: worker 3 1000", "server: worker 3"])
def test_what_ps_prints_is_a_name(tmp_path: Path, said: str) -> None:
    program = tmp_path / f"nap{os.getpid()}"
    shutil.copy("/bin/sleep", program)
    with start_as("server: worker 3", program) as process:
        assert processes.find(said) == [process.pid]
        process.kill()


def test_processes_of_one_name_are_told_apart(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    with start_as("the second one", tmp_path / f"nap{os.getpid()}") as other:
        assert processes.find(f"nap{os.getpid()}") == sorted([sleeper.pid, other.pid])
        with pytest.raises(errors.AmbiguousNameError) as caught:
            processes.resolve(f"nap{os.getpid()}")
        other.kill()
    (row,) = (line for line in caught.value.details if line.endswith("  the second one 1000"))
    assert row.split()[:2] == [str(other.pid), str(os.getpid())]
