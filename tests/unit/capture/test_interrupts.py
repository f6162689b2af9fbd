"""An interrupt that comes just before a wait must not be noticed only at its end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from reachscan.capture import interrupts
from reachscan.capture.lifetime import Lifetime
from reachscan.transport.processes import Life


class Clock:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.3, 1.0, 2.5, 7200.0])
def test_the_parts_of_a_wait(clock: Clock, seconds: float) -> None:
    for part in interrupts.in_parts(seconds):
        clock.wait(part)
    assert clock.waits
    assert max(clock.waits) <= 1
    assert sum(clock.waits) == pytest.approx(max(0.0, seconds))


def waits_for_itself(clock: Clock, patch: pytest.MonkeyPatch) -> bool:
    class Poll:
        def register(self, *_: object) -> None:
            pass

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            clock.wait(milliseconds / 1000)
            return []

    with Lifetime(os.getpid()) as life:
        patch.setattr(select, "poll", Poll)
        return life.ends_within(3600)


def waits_elsewhere(clock: Clock, patch: pytest.MonkeyPatch) -> bool:
    patch.setattr(time, "sleep", clock.wait)
    return Life(1, 5, lambda _: 5, bytes).ends_within(3600)


@pytest.mark.parametrize("wait", [waits_for_itself, waits_elsewhere])
def test_no_wait_for_an_end_is_long(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, wait: Callable[..., bool]
) -> None:
    assert not wait(clock, monkeypatch)
    assert sum(clock.waits) == pytest.approx(3600)
    assert max(clock.waits) <= 1


def test_an_interrupt_that_python_ignores_comes_again() -> None:
    script = """
import select, signal
from reachscan.capture import interrupts

class Dying:
    def __del__(self):
        raise KeyboardInterrupt

signal.signal(signal.SIGTERM, signal.default_int_handler)
interrupts.deliver_all()
try:
    Dying()
    select.select([], [], [], 60)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
