"""Finds, starts and stops the native helper, and turns its failures into errors."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from reachscan import errors
from reachscan.capture import interrupts

if TYPE_CHECKING:
    from reachscan.capture.options import ScanOptions
    from reachscan.recording import wire

EXECUTABLE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "_native", "reachscan-helper")
OVERRIDE = "REACHSCAN_HELPER"

RELEASE_SECONDS = 5.0
"""Seconds that the helper gets to restore the target before it is killed."""

GRACE_SECONDS = 10.0
"""Seconds after --timeout, which the helper obeys itself, at which it counts as stuck."""

MAX_REST_SECONDS = 0.1
"""Seconds after which this process starts its own work even if the target is still stopped."""

_HELPERS = {"armv7l": "armv7", "armv8l": "aarch64"}
"""Where the kernel's name of a machine is not that of its helper. The second one is a 64-bit kernel
that passes for one of 32 bits."""

_OOM_SCORE = "/proc/self/oom_score_adj"
_FIRST_TO_BE_KILLED = "1000"

_BAD_ARGUMENTS = 2
_KILLED_EXTERNALLY = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def executable(machine: str) -> str:
    """Return the path of the helper for a processor, called as `uname -m` does.

    Raises:
        NoHelperError: there is no helper for it.
    """
    if machine == os.uname().machine:
        return os.environ.get(OVERRIDE) or EXECUTABLE
    name = _HELPERS.get(machine, machine)
    path = os.path.join(os.path.dirname(EXECUTABLE), "helpers", name, "reachscan-helper")
    if not os.path.exists(path):
        raise errors.NoHelperError(f"there is no helper for {machine} in this installation")
    return path


@contextmanager
def run(pid: int, options: ScanOptions) -> Iterator[Iterator[wire.Frame]]:
    """Run the helper on a process; see `run_with`."""
    with (
        _handed_over(options.lost_before) as (words, descriptors),
        run_with([*options.arguments(pid), *words], options, descriptors) as frames,
    ):
        yield frames


@contextmanager
def _handed_over(lost_before: bytes) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Yield the helper's arguments for what earlier scans found, and descriptors for it."""
    if not lost_before:
        yield [], ()
        return
    with os.fdopen(os.memfd_create("lost before"), "wb") as file:
        file.write(lost_before)
        file.flush()
        yield ["--lost-before", f"/proc/self/fd/{file.fileno()}"], (file.fileno(),)


@contextmanager
def run_with(
    arguments: list[str], options: ScanOptions, descriptors: tuple[int, ...] = ()
) -> Iterator[Iterator[wire.Frame]]:
    """Run the helper; inside the block, its records arrive as it writes them.

    Args:
        arguments: the helper's command line.
        options: how to scan; `arguments` says the same.
        descriptors: file descriptors that the helper inherits.

    However the block is left, the helper has exited by then and the target runs freely.

    Raises:
        HelperUnavailableError: it is missing or cannot be started.
        HelperKilledError: a signal from another process killed it.
        InternalError: it crashed, or rejected its arguments.
        StreamError: its stream ended without a reason.
        TimedOutError: it took longer than the options allow.
    """
    asleep, wake = os.pipe()
    with (
        _first_to_be_killed(),
        os.fdopen(os.memfd_create("talk"), "w+b") as talk,
        os.fdopen(asleep) as awake,
        _started(arguments, talk, (wake, *descriptors), verbose=options.verbose) as process,
    ):
        watchdog = Watchdog(process, options.timeout)
        try:
            # While the target is stopped, nothing here may compete with it for processors.
            poll = select.poll()  # select() knows only the first 1024 descriptors
            poll.register(awake, select.POLLIN)
            poll.poll(1000 * MAX_REST_SECONDS)
            yield _frames(process, options.timeout, talk)
        except errors.HelperKilledError as error:
            if watchdog.bit:
                raise errors.TimedOutError("the helper was stuck and had to be killed") from error
            raise
        finally:
            watchdog.cancel()


@contextmanager
def _first_to_be_killed() -> Iterator[None]:
    """Make the kernel kill the helper first if memory that it shares with the target runs out."""
    try:
        with open(_OOM_SCORE) as file:
            before = file.read()
        _write(_OOM_SCORE, _FIRST_TO_BE_KILLED)
    except OSError:  # /proc is read-only: the scan works without it
        yield
        return
    try:
        yield
    finally:
        _write(_OOM_SCORE, before)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@contextmanager
def _started(
    arguments: list[str], talk: IO[bytes], descriptors: tuple[int, ...], *, verbose: bool
) -> Iterator[subprocess.Popen[bytes]]:
    with ExitStack() as cleanup:
        with interrupts.put_off():
            process = _start(arguments, talk, descriptors, verbose=verbose)
            cleanup.callback(stop, process)
            # A failing write makes the helper clean up and exit; a signal would not.
            assert process.stdout is not None
            cleanup.callback(process.stdout.close)
        yield process


def _start(
    arguments: list[str], talk: IO[bytes], descriptors: tuple[int, ...], *, verbose: bool
) -> subprocess.Popen[bytes]:
    wake = descriptors[0]
    path = executable(os.uname().machine)
    try:
        # A session of its own keeps the terminal's Ctrl-C away: killed at an arbitrary moment, the
        # helper could not restore the target.
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
    """Kills a helper that overruns its time."""

    def __init__(self, process: subprocess.Popen[bytes], timeout: float | None) -> None:
        self.bit = False
        self._process = process
        self._timer = threading.Timer((timeout or 0) + GRACE_SECONDS, self._kill_stalled)
        self._timer.daemon = True
        if timeout is not None:
            self._timer.start()

    def cancel(self) -> None:
        """Cancel the time limit."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()  # a later fork has one thread less

    def _kill_stalled(self) -> None:
        self.bit = True
        self._process.terminate()
        stop(self._process)


def _frames(
    process: subprocess.Popen[bytes], timeout: float | None, talk: IO[bytes]
) -> Iterator[wire.Frame]:
    from reachscan.recording import wire  # only after the helper has started

    assert process.stdout is not None
    begin = time.monotonic()
    try:
        for frame in wire.frames(cast(BinaryIO, process.stdout)):
            # A late failure record says more than that the time was up.
            late = timeout is not None and time.monotonic() - begin > timeout
            if late and frame.type != wire.FAILURE:
                raise errors.TimedOutError(f"the scan took longer than {timeout:g} s")
            yield frame
    except errors.StreamError as error:
        raise _explain_early_end(process, talk) or error from error


def _explain_early_end(
    process: subprocess.Popen[bytes], talk: IO[bytes]
) -> errors.ReachscanError | None:
    status = process.wait()
    last_words = last_line(talk)
    said = f"; it said: {last_words}" if last_words else ""
    if status < 0:
        number = -status
        name = signal.Signals(number).name if number in list(signal.Signals) else "unknown"
        sentence = f"the helper was killed by signal {number} ({name}){said}"
        if number in _KILLED_EXTERNALLY:
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
    """Return the last line that a process wrote into a file."""
    talk.seek(0)
    lines = talk.read().decode("utf-8", "backslashreplace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Wait for the helper to exit; ask it to, and then kill it, if it does not."""
    for press in (process.terminate, process.kill):
        try:
            process.wait(RELEASE_SECONDS)
        except subprocess.TimeoutExpired:
            press()
    process.wait()
