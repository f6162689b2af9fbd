"""Finds, starts and stops the native helper, and turns its end into an error class."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from reachscan import errors

if TYPE_CHECKING:
    from reachscan.capture.options import ScanOptions
    from reachscan.recording import wire

EXECUTABLE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "_native", "reachscan-helper")
OVERRIDE = "REACHSCAN_HELPER"

LET_GO_SECONDS = 5.0
"""The helper gets this long to put the target back in order before it is killed."""

GRACE_SECONDS = 10.0
"""The helper keeps --timeout itself; this much later it is taken for stuck."""

LONGEST_REST = 0.1
"""Seconds after which work begins here even if the target still stands still."""

_OOM_SCORE = "/proc/self/oom_score_adj"
_FIRST_TO_BE_KILLED = "1000"

_BAD_ARGUMENTS = 2
_KILLED_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def executable(machine: str) -> str:
    """Return the path of the helper for a processor, called as `uname -m` does.

    Raises:
        NoHelperError: there is none for it.
    """
    if machine == os.uname().machine:
        return os.environ.get(OVERRIDE) or EXECUTABLE
    path = os.path.join(os.path.dirname(EXECUTABLE), "helpers", machine, "reachscan-helper")
    if not os.path.exists(path):
        raise errors.NoHelperError(f"there is no helper for {machine} in this installation")
    return path


@contextmanager
def run(pid: int, options: ScanOptions) -> Iterator[Iterator[wire.Frame]]:
    """Run the helper on a process, as `run_with` does."""
    with run_with(options.arguments(pid), options) as frames:
        yield frames


@contextmanager
def run_with(
    arguments: list[str], options: ScanOptions, descriptors: tuple[int, ...] = ()
) -> Iterator[Iterator[wire.Frame]]:
    """Run the helper; inside the block its records arrive as they are made.

    Args:
        arguments: its command line.
        options: how to scan; the arguments say the same.
        descriptors: what it inherits.

    When the block is left in any way, the helper has ended and the target runs free.

    Raises:
        HelperUnavailableError: it is not there or cannot be started.
        HelperKilledError: a signal from outside ended it.
        InternalError: it crashed, or rejected its arguments.
        StreamError: it broke off without saying why.
        TimedOutError: it took longer than the options allow.
    """
    asleep, wake = os.pipe()
    with (
        _first_to_be_killed(),
        os.fdopen(os.memfd_create("talk"), "w+b") as talk,
        os.fdopen(asleep) as awake,
    ):
        process = _start(arguments, talk, (wake, *descriptors), verbose=options.verbose)
        assert process.stdout is not None
        watchdog = Watchdog(process, options.timeout)
        try:
            # While the target stands still, nothing here may keep its threads from a processor.
            poll = select.poll()  # select() knows only the first 1024 descriptors
            poll.register(awake, select.POLLIN)
            poll.poll(1000 * LONGEST_REST)
            yield _frames(process, options.timeout, talk)
        except errors.HelperKilledError as error:
            if watchdog.bit:
                raise errors.TimedOutError("the helper was stuck and had to be killed") from error
            raise
        finally:
            watchdog.cancel()
            # A failing write is what lets it stop in good order; a signal would not.
            process.stdout.close()
            stop(process)


@contextmanager
def _first_to_be_killed() -> Iterator[None]:
    """If memory runs out that we share with the target, let it be us who goes."""
    try:
        with open(_OOM_SCORE) as file:
            before = file.read()
        _write(_OOM_SCORE, _FIRST_TO_BE_KILLED)
    except OSError:  # no /proc that can be written to: it works without
        yield
        return
    try:
        yield
    finally:
        _write(_OOM_SCORE, before)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _start(
    arguments: list[str], talk: IO[bytes], descriptors: tuple[int, ...], *, verbose: bool
) -> subprocess.Popen[bytes]:
    wake = descriptors[0]
    path = executable(os.uname().machine)
    try:
        # A session of its own keeps Ctrl-C from the terminal away: dying at any moment of its
        # choosing, rather than ours, it could not put the target back in order.
        return subprocess.Popen(
            [path, *arguments, "--wake", str(wake)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if verbose else talk,
            pass_fds=descriptors,
            start_new_session=True,
        )
    except OSError as error:
        raise errors.HelperUnavailableError(
            f"the native helper {path} cannot be started: {error.strerror}"
        ) from error
    finally:
        os.close(wake)


class Watchdog:
    """Ends a helper that does not notice that its time is over."""

    def __init__(self, process: subprocess.Popen[bytes], timeout: float | None) -> None:
        self.bit = False
        self._process = process
        self._timer = threading.Timer((timeout or 0) + GRACE_SECONDS, self._bite)
        self._timer.daemon = True
        if timeout is not None:
            self._timer.start()

    def cancel(self) -> None:
        """Let the helper go on for ever."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()  # whoever forks later does so with one thread less

    def _bite(self) -> None:
        self.bit = True
        self._process.terminate()
        stop(self._process)


def _frames(
    process: subprocess.Popen[bytes], timeout: float | None, talk: IO[bytes]
) -> Iterator[wire.Frame]:
    from reachscan.recording import wire  # not before the helper is at work

    assert process.stdout is not None
    begin = time.monotonic()
    try:
        for frame in wire.frames(cast(BinaryIO, process.stdout)):
            # A failure that comes late says more than that it was late.
            late = timeout is not None and time.monotonic() - begin > timeout
            if late and frame.type != wire.FAILURE:
                raise errors.TimedOutError(f"the scan took longer than {timeout:g} s")
            yield frame
    except errors.StreamError as error:
        raise _why_it_broke_off(process, talk) or error from error


def _why_it_broke_off(
    process: subprocess.Popen[bytes], talk: IO[bytes]
) -> errors.ReachscanError | None:
    status = process.wait()
    last_words = last_line(talk)
    said = f"; it said: {last_words}" if last_words else ""
    if status < 0:
        number = -status
        name = signal.Signals(number).name if number in list(signal.Signals) else "unknown"
        sentence = f"the helper was killed by signal {number} ({name}){said}"
        if number in _KILLED_FROM_OUTSIDE:
            return errors.HelperKilledError(sentence)
        return errors.InternalError(sentence)
    if status == _BAD_ARGUMENTS:
        words = " ".join(cast("list[str]", process.args)[1:])
        return errors.InternalError(f"the helper does not understand `{words}`{said}")
    if status or last_words:
        return errors.InternalError(
            f"the helper ended with status {status} before its report was complete{said}"
        )
    return None


def last_line(talk: IO[bytes]) -> str:
    """Return what a process has said last, of what it has written into a file."""
    talk.seek(0)
    lines = talk.read().decode("utf-8", "backslashreplace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the helper; ask for it, and enforce it, if it does not come."""
    for press in (process.terminate, process.kill):
        try:
            process.wait(LET_GO_SECONDS)
        except subprocess.TimeoutExpired:
            press()
    process.wait()
