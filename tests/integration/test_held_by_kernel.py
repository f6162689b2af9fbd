"""Pointers that only the kernel holds keep their blocks alive, or else make their leak doubtful."""

from __future__ import annotations

import ctypes

import pytest
from conftest import StartVictim
from scans import recording_of
from unharmed import METHODS
from victims import Victim, thread_states, wait_until

from reachscan import model

VERDICTS = {model.DEFINITE: "leak", model.HELD_BY_KERNEL: "possible"}


def need_io_uring() -> None:
    """Skip the test if no program can make a ring here."""
    set_up, entries, parameters = 425, 1, ctypes.create_string_buffer(120)
    if ctypes.CDLL(None, use_errno=True).syscall(set_up, entries, parameters) < 0:
        pytest.skip(f"io_uring is switched off or not built in (errno {ctypes.get_errno()})")


def assert_verdicts(target: Victim, method: str) -> None:
    """Each block is called what the target says that it must be called; doubts come with why."""
    recording = recording_of(target.pid, "--method", method)
    leaks = recording.leaks
    said = {
        address: VERDICTS[reason]
        for address, reason in zip(leaks.address.tolist(), leaks.reason.tolist(), strict=True)
    }
    scenes = {int(scene["address"], 16): scene["expected"] for scene in target.ready["scenes"]}
    assert {address: said.get(address, "live") for address in scenes} == scenes
    assert said.keys() <= scenes.keys()
    warnings = [warning.code for warning in recording.warnings]
    assert ("held-by-kernel" in warnings) == ("possible" in scenes.values())


REQUESTS = ("kept", "replaced", "reused", "polled", "worked", "repeated", "overflown")
REQUESTS += ("closed", "idle")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scene", REQUESTS)
def test_requests_of_io_uring(victim: StartVictim, scene: str, method: str) -> None:
    need_io_uring()
    target = victim("ring_requests", scene)
    if scene == "worked":
        wait_until(lambda: thread_states(target.pid) == ["S", "S"], "the kernel's thread waits")
    assert_verdicts(target, method)
