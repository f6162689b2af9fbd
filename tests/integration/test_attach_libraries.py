"""Libraries that are loaded while a process is being recorded, and what the loader tells of it."""

from __future__ import annotations

import json
import mmap

import pytest
from attached import Surroundings, functions, obey, without_entries
from conftest import StartVictim
from scans import run_cli, scan
from victims import Victim, build

from reachscan.capture.launch import RECORDER
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

BLOCKS = 25
ROUNDS = 10
ATTACHES = 25
LOADS = ["lose_when_loaded", "loaded"]


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


def libraries() -> list[str]:
    flags = ("-shared", "-fPIC", "-DLIBRARY", "-DLOST_BYTES=3333")
    return [str(build("reloads", (*flags, f"-DROOM={room}"))) for room in (10, 10**5, 3 * 10**6)]


def test_attached_while_threads_load_and_close_libraries(victim: StartVictim) -> None:
    """A thread is stopped now and then where the loader lists one whose memory is gone."""
    for _ in range(ATTACHES):
        program = victim("reloads", command=[str(build("reloads")), *libraries()])
        done = run_cli(["attach", program.pid])
        assert done.status == 0, done.talk
        program.quit()


@pytest.mark.parametrize("way", ["attach", "run"])
def test_libraries_that_threads_load_and_close_all_the_time(victim: StartVictim, way: str) -> None:
    """What the loader lists may be unmapped while the recorder reads it."""
    settings = {"LD_PRELOAD": str(RECORDER), VARIABLE: RecordingOptions().settings(0, "")}
    command = [str(build("reloads")), *libraries()]
    program = victim("reloads", command=command, environment=settings if way == "run" else {})
    if way == "attach":
        assert run_cli(["attach", program.pid]).status == 0
    for _ in range(ROUNDS):
        obey(program, "more")
    report = scan(program.pid)
    assert report["target"]["recorder"]["stopped"] is None
    stacks = [report["stacks"][g["stack"]] for g in report["groups"] if g["stack"] is not None]
    assert stacks
    for stack in stacks:
        # A library that is closed now has no names of functions; one that is being closed, none.
        assert [frame["function"] or name for frame, name in zip(stack, LOADS)] == LOADS
        assert {frame["module"] for frame in stack[:2]} <= {*libraries(), None}
        assert "run" in [frame["function"] for frame in stack]
    if way == "attach":
        assert kept_bytes(program.pid) == 0
