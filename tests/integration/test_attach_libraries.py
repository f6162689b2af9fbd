"""Libraries that are loaded while a process is being recorded, and what the loader tells of it."""

from __future__ import annotations

import json
import mmap

import pytest
from attached import Surroundings, functions, obey, without_entries
from conftest import StartVictim
from scans import run_cli, scan
from victims import Victim, build

BLOCKS = 25


def surroundings_of(program: Victim) -> Surroundings:
    """Without a library; but all that one makes the loader do has been done before."""
    for word in ("open", "lose", "close"):
        obey(program, word)
    return Surroundings(program.pid)


def lost_by(pid: int, function: str) -> int:
    report = scan(pid)
    return sum(
        group["allocations"]
        for group in report["groups"]
        if functions(report, group)[:1] == [function]
    )


def kept_bytes(pid: int) -> int:
    done = run_cli(["detach", pid, "--json"])
    assert done.status == 0, done.talk
    return int(json.loads(done.out)["kept_bytes"])


def start(victim: StartVictim, hooked: str) -> Victim:
    library = build("loads_later", ("-shared", "-fPIC", "-DLIBRARY"))
    environment = without_entries() if hooked == "words" else {}
    return victim("loads_later", library, environment=environment)


@pytest.mark.parametrize("hooked", ["entries", "words"])
def test_a_library_that_is_loaded_later(victim: StartVictim, hooked: str) -> None:
    program = start(victim, hooked)
    surroundings = surroundings_of(program)
    assert run_cli(["attach", program.pid]).status == 0
    obey(program, "open")
    obey(program, "lose")
    assert lost_by(program.pid, "lose_in_library") == BLOCKS
    assert kept_bytes(program.pid) == 0
    obey(program, "lose")  # it calls the allocator itself again
    obey(program, "close")
    surroundings.assert_same()
    obey(program, "open")
    obey(program, "lose")


def test_a_library_that_is_closed_meanwhile(victim: StartVictim) -> None:
    program = start(victim, "words")
    surroundings = surroundings_of(program)
    obey(program, "open")
    assert run_cli(["attach", program.pid]).status == 0
    obey(program, "close")
    assert kept_bytes(program.pid) == 0
    surroundings.assert_same()


def test_a_thread_that_has_yet_to_return_through_the_recorder(victim: StartVictim) -> None:
    """The recorder calls dlclose(), which waits: its code must be there when that returns."""
    program = start(victim, "entries")
    obey(program, "open")
    obey(program, "wait")
    assert run_cli(["attach", program.pid]).status == 0
    obey(program, "close", "closing")
    done = run_cli(["detach", program.pid])
    assert done.status == 3
    assert f"thread {program.pid} has yet to return" in done.talk
    obey(program, "", "close")
    assert kept_bytes(program.pid) == 0
    obey(program, "open")


@pytest.mark.parametrize("hooked", ["entries", "words"])
def test_a_function_that_the_loader_was_asked_for(victim: StartVictim, hooked: str) -> None:
    program = start(victim, hooked)
    assert run_cli(["attach", program.pid]).status == 0
    obey(program, "find")
    assert lost_by(program.pid, "lose_what_is_found") == BLOCKS
    assert kept_bytes(program.pid) == (mmap.PAGESIZE if hooked == "words" else 0)
    obey(program, "forget")
    assert run_cli(["attach", program.pid]).status == 0
    assert kept_bytes(program.pid) == 0
