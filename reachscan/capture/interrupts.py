"""Ctrl-C, also at awkward moments: after a process was started, or before one waits for it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_LONGEST_WAIT = 1.0  # seconds
_MOMENT = 0.01  # seconds


def signals() -> list[signal.Signals]:
    """Return the signals that interrupt us. SIGHUP is none of them if it is ignored (nohup)."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangs_up else [])]


def deliver_all() -> None:
    """Have an interrupt delivered once more if Python ignores it.

    It does so, with a traceback, if one comes in a callback that it calls by itself: when an object
    dies, or when a module has been imported.
    """
    usual = sys.unraisablehook

    def again(what: sys.UnraisableHookArgs) -> None:
        if what.exc_type is KeyboardInterrupt:
            # Not now: it would come in this function. SIGINT may be ignored, SIGTERM is not.
            threading.Timer(_MOMENT, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            usual(what)

    sys.unraisablehook = again


@contextmanager
def put_off() -> Iterator[None]:
    """Handle interrupts that come inside the block at its end.

    It is for the moment between the start of a process and the promise to wait for it.

    The signals are not blocked, since processes that are started inside would inherit that. Only
    the main thread is ever interrupted, so elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    handled = [number for number in signals() if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, note) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)


def in_parts(seconds: float) -> Iterator[float]:
    """Yield how long to wait next, in seconds, until `seconds` have passed; at least once.

    Python handles a signal that comes just before it starts to wait only when the wait is over. So
    no wait that an interrupt should end may be long.
    """
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        yield min(max(0.0, left), _LONGEST_WAIT)
        if left <= _LONGEST_WAIT:
            return
