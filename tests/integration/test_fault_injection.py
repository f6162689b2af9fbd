"""The helper dies right before every single call of the kernel; the target never notices."""

from __future__ import annotations

import os
import random
import time
import warnings
from pathlib import Path

import pytest
from conftest import StartVictim
from unharmed import METHODS, TRACK, Helper, Watched, assert_sound, last_words
from worlds import confined, need_root

SECONDS = float(os.environ.get("REACHSCAN_FAULT_SECONDS", "4"))
"""Time for one method and victim, beyond the first calls; every call is tried if it suffices, else
a random choice."""
PASSES = int(os.environ.get("REACHSCAN_FAULT_PASSES", "1"))
LEADING_CALLS = 64
"""Calls that are always tried: until here the target is stopped, cloned and released."""


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


def order_of_calls(count: int) -> list[int]:
    rest = list(range(LEADING_CALLS + 1, count + 1))
    random.Random(count).shuffle(rest)
    return [*range(1, min(count, LEADING_CALLS) + 1), *rest]


def die_at_calls(target: Watched, method: str, seconds: float) -> tuple[int, int, int]:
    """Return how many calls there were, how many were tried and how many runs died."""
    whole = target.helper.scan(target.pid, "--method", method, "--count-calls")
    end = time.monotonic() + seconds
    tried = died = 0
    for number in order_of_calls(whole.calls):
        if tried >= LEADING_CALLS and time.monotonic() > end:
            break
        ending = target.helper.run(target.pid, "--method", method, "--die-at-call", number)
        fine = ending.killed or ending.gave_up or ending.status == 0
        assert fine, f"call {number}: {ending}"
        try:
            target.assert_unharmed()
        except AssertionError as error:
            raise AssertionError(f"{method}, death before call {number}: {error}") from error
        tried += 1
        died += ending.killed
    return whole.calls, tried, died


@pytest.mark.parametrize("allocating", [0, 2], ids=["resting", "allocating"])
@pytest.mark.parametrize("method", METHODS)
def test_death_before_each_call(
    victim: StartVictim, helper: Helper, method: str, allocating: int
) -> None:
    victim_process = victim("checker", allocating)
    target = Watched(victim_process.pid, helper)
    # The allocator in motion only adds the calls that let it come to rest.
    seconds = SECONDS / 4 if allocating else SECONDS
    died = 0
    for _ in range(PASSES):
        calls, tried, deaths = die_at_calls(target, method, seconds)
        died += deaths
        print(f"{method}: {calls} calls, died before {deaths} of {tried} tried")
        if tried < calls and not allocating:
            warnings.warn(
                f"only {tried} of {calls} calls tried in {seconds:g} s; "
                "REACHSCAN_FAULT_SECONDS gives more time",
                stacklevel=1,
            )
    helper.scan(target.pid, "--method", method)  # it still can be scanned
    # The kernel ends epoll_wait() at a stop; only a living helper can repair that.
    assert_sound(last_words(victim_process), cut_short=died)


@need_root
@pytest.mark.parametrize("method", ["clone", TRACK])
def test_death_under_a_seccomp_filter(victim: StartVictim, helper: Helper, method: str) -> None:
    """It kills for most of what the target never does itself, but is made to do."""
    victim_process = victim("checker", command=confined("filter", "checker"))
    target = Watched(victim_process.pid, helper)
    calls, tried, died = die_at_calls(target, method, SECONDS / 2)
    print(f"{method}: {calls} calls, died before {died} of {tried} tried")
    helper.scan(target.pid, "--method", method)
    assert_sound(last_words(victim_process), cut_short=died)


@pytest.mark.parametrize("method", METHODS)
def test_signals_survive_a_death(victim: StartVictim, helper: Helper, method: str) -> None:
    victim_process = victim("signals")
    target = Watched(victim_process.pid, helper)
    calls, tried, died = die_at_calls(target, method, SECONDS / 4)
    print(f"{method}, under fire: {calls} calls, died before {died} of {tried} tried")
    assert died > 0
    words = last_words(victim_process)
    assert (words["lost"], words["doubled"], words["sigchld"]) == (0, 0, 0), words
    assert words["missing_ticks"] == 0, words
