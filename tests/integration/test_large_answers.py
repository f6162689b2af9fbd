"""The kernel may have more to tell about a target than fits into a pause, or into memory."""

from __future__ import annotations

import pytest
from conftest import StartVictim
from scans import recording_of
from unharmed import TRACK
from victims import Victim

from reachscan.recording import model

ALL_ARE_READ, TOO_MANY = 900, 1500
ARGUMENTS_SHOWN = 64 << 10
ALL_BITS = (1 << 64) - 1


def blocks(target: Victim) -> list[int]:
    return [hidden ^ ALL_BITS for hidden in target.ready["hidden"]]


@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
def test_values_of_pending_signals_are_pointers(victim: StartVictim, method: str) -> None:
    target = victim("many_signals", ALL_ARE_READ)
    recording = recording_of(target.pid, "--method", method)
    _, _, lost = blocks(target)
    assert recording.leaks.address.tolist() == [lost]
    assert set(recording.leaks.reason.tolist()) == {model.DEFINITE}
    assert recording.warnings == ()


@pytest.mark.parametrize("method", ["clone", "copy", TRACK])
def test_too_many_pending_signals_are_a_doubt(victim: StartVictim, method: str) -> None:
    target = victim("many_signals", TOO_MANY)
    recording = recording_of(target.pid, "--method", method)
    leaks = recording.leaks.address.tolist()
    first, last, lost = blocks(target)
    assert first not in leaks and {last, lost} <= set(leaks)
    assert set(recording.leaks.reason.tolist()) == {model.HELD_BY_KERNEL}
    assert [warning.code for warning in recording.warnings] == ["held-by-kernel"]


def test_arguments_are_cut_short(victim: StartVictim) -> None:
    target = victim("long_arguments", 100)
    command = recording_of(target.pid).target.command
    assert command == ("a" * ARGUMENTS_SHOWN,)
