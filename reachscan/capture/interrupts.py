"""Puts off Ctrl-C for the moment between the start of a process and the promise to wait for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def put_off() -> Iterator[None]:
    """Handle interrupts that come inside the block at its end.

    The signals are not blocked, since processes that are started inside would inherit that. Only
    the main thread is ever interrupted, so elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    handled = [number for number in _INTERRUPTS if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, note) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)
