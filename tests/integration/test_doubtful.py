"""Leaks that a word could stand for are told apart from those that are certain, with the reason."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import StartVictim
from glibc_suites import PYTHONS
from provisions import provide_all
from scans import recording_of, run_cli
from test_python_objects import MORE, PYTHON, extension, script
from unharmed import METHODS
from victims import Victim, build, glibc_of, running, wait_blocked

from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

REASONS = {
    model.DEFINITE: "leak",
    model.ONE_PAST_THE_END: "end",
    model.TAGGED: "tag",
    model.RELATIVE: "relative",
    model.NUMBER: "number",
    model.STALE_WORD: "stale",
    model.UNALIGNED: "unaligned",
}

LOW = "-no-pie"
PROGRAMS = {
    "doubtful": ("doubtful",),
    "other_forms": ("other_forms",),
    "recycled": ("recycled",),
    "free_keys": ("free_keys",),
    "far_apart": ("far_apart",),
    "narrow_pointers": ("narrow_pointers", LOW),
    "python_ints": ("python_ints",),
    # The heap follows: below 1 GiB, mostly, and above.
    "python_ints, low": ("python_ints", LOW),
    "python_ints, above 1 GiB": ("python_ints", LOW, "-Wl,-Ttext-segment=0x50000000"),
}
ON_STALE_WORDS = {
    "lookalikes": ("lookalikes",),
    "held_lookalike": ("held_lookalike",),
    "llvm_containers": ("llvm_containers",),
    "never_initialised": ("never_initialised",),
    "qt_containers": ("qt_containers",),
    "spare_parts": ("spare_parts",),
    "written_over": ("written_over",),
    "written_over, low": ("written_over", LOW),
}
LAST_GLIB_WITH_SLICES = 74  # of its stable releases, which have even numbers
LUA = {
    "5.1": "liblua5.1-0-dev",
    "5.2": "liblua5.2-dev",
    "5.3": "liblua5.3-dev",
    "5.4": "liblua5.4-dev",
}
"""The packages of its releases."""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_word_that_could_stand_for_a_pointer(
    victim: StartVictim, program: str, method: str
) -> None:
    name, *flags = {**PROGRAMS, **ON_STALE_WORDS}[program]
    assert_verdicts(victim(name, command=[str(build(name, flags))]), method)


def assert_verdicts(target: Victim, method: str) -> None:
    """Compare what a scan says of each scene to what the target expects."""
    leaks = recording_of(target.pid, "--method", method).leaks
    said = {
        address: REASONS[reason]
        for address, reason in zip_equal(leaks.address.tolist(), leaks.reason.tolist())
    }
    wrong = {
        scene["name"]: f"{said.get(int(scene['address'], 16), 'live')}, not {scene['expected']}"
        for scene in target.ready["scenes"]
        if said.get(int(scene["address"], 16), "live") != scene["expected"]
    }
    assert wrong == {}
    assert len(said) == sum(scene["expected"] != "live" for scene in target.ready["scenes"])


@pytest.mark.parametrize("method", ("clone", "copy", "track"))
@pytest.mark.parametrize("program", ON_STALE_WORDS)
def test_what_hangs_on_a_stale_word(victim: StartVictim, program: str, method: str) -> None:
    test_each_word_that_could_stand_for_a_pointer(victim, program, method)


@pytest.mark.parametrize("method", ("clone", "copy", "track"))
@pytest.mark.parametrize("others", ((), ("others",)))
def test_words_meant_for_blocks_that_begin_with_their_size(
    victim: StartVictim, others: tuple[str, ...], method: str
) -> None:
    assert_verdicts(victim("size_headers", *others), method)


@pytest.mark.parametrize("method", ("clone", "copy", "track"))
@pytest.mark.parametrize("release", ("5.1", "5.2", "5.3", "5.4"))
def test_what_lua_leaves_in_its_objects(victim: StartVictim, release: str, method: str) -> None:
    provide_all(LUA[release])
    flags = (f"-I/usr/include/lua{release}", f"-llua{release}")
    target = victim("lua_values", command=[str(build("lua_values", flags))])
    assert_verdicts(target, method)


@pytest.mark.parametrize("method", ("clone", "copy", "track"))
def test_what_is_left_in_slices_of_glib(victim: StartVictim, method: str) -> None:
    try:
        release = ctypes.c_uint.in_dll(ctypes.CDLL("libglib-2.0.so.0"), "glib_minor_version").value
    except OSError:
        pytest.skip("GLib is not installed")
    if release >= LAST_GLIB_WITH_SLICES + 2:
        pytest.skip(f"GLib 2.{release} has no slices any more")
    assert_verdicts(victim("free_slices"), method)


@pytest.mark.parametrize("method", ("clone", "copy", "track"))
def test_what_python_leaves_in_its_objects(method: str) -> None:
    assert_python_verdicts([*PYTHON], method)


@pytest.mark.parametrize("suite", PYTHONS)
def test_what_other_releases_of_python_leave(suite: str) -> None:
    assert_python_verdicts(glibc_of(suite).python, "clone")


@pytest.mark.parametrize("python", MORE)
def test_what_interpreters_that_are_named_leave(python: str) -> None:
    assert_python_verdicts([python], "clone")


def assert_python_verdicts(python: Sequence[str], method: str) -> None:
    module = str(extension("writes_behind"))
    with running([*python, script("writes_behind"), module]) as target:
        assert_verdicts(target, method)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only there calls change all of them")
@pytest.mark.parametrize("method", ("clone", "copy", "track"))
def test_a_register_that_calls_change(victim: StartVictim, method: str) -> None:
    target = victim("left_over_register")
    wait_blocked(target.pid)
    (scene,) = target.ready["scenes"]
    leaks = recording_of(target.pid, "--method", method).leaks
    assert leaks.address.tolist() == [int(scene["address"], 16)]
    assert leaks.reason.tolist() == [model.STALE_WORD]
    said = " ".join(
        run_cli(["explain", target.pid, scene["address"], "--method", method]).out.split()
    )
    assert "register xmm5 of thread" in said


def test_no_more_possible_signal_stacks_than_threads(victim: StartVictim) -> None:
    target = victim("signal_stack")
    leaks = recording_of(target.pid).leaks
    possible = leaks.address[leaks.reason == model.SIGNAL_STACK].tolist()
    scenes = target.ready["scenes"]
    assert possible == [int(s["address"], 16) for s in scenes if s["expected"] == "possible"]
    assert (leaks.reason == model.DEFINITE).sum() == len(scenes) - 1


def test_a_doubtful_structure_keeps_its_order(victim: StartVictim) -> None:
    target = victim("doubtful")
    leaks = recording_of(target.pid).leaks
    scenes = {scene["name"]: int(scene["address"], 16) for scene in target.ready["scenes"]}
    position = {address: i for i, address in enumerate(leaks.address.tolist())}
    owner = position[scenes["owner by its end"]]
    below = position[scenes["below an owner by its end"]]
    assert leaks.parent[owner] == model.DIRECT
    assert leaks.parent[below] == owner


def test_a_stale_word_makes_no_owner(victim: StartVictim) -> None:
    target = victim("recycled")
    leaks = recording_of(target.pid).leaks
    position = {address: i for i, address in enumerate(leaks.address.tolist())}
    for scene in target.ready["scenes"]:
        if scene["expected"] != "live":
            direct = leaks.parent[position[int(scene["address"], 16)]] == model.DIRECT
            assert direct == (scene["name"] != "below one of these"), scene


def test_memory_that_cannot_be_read_makes_all_doubtful(
    victim: StartVictim, truth: Path, tmp_path: Path
) -> None:
    target = victim("guard_pages", truth, tmp_path / "scratch")
    recording = recording_of(target.pid)
    missed = any(warning.code == "unreadable-memory" for warning in recording.warnings)
    reasons = set(recording.leaks.reason.tolist())
    assert reasons <= ({model.UNREADABLE_MEMORY} if missed else {model.DEFINITE})
