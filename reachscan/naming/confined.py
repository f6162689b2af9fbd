"""Reads untrusted files in a separate process, which may fail or be killed.

A file can be crafted so that reading it never ends or uses all memory, and its file system may
never answer. Results from such files are useful, but nothing depends on them: the work has limits
on memory and time, and ends early if it exceeds them.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import math
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from reachscan.naming.untrusted_files import UnusableFileError

MEMORY = 512 << 20
"""Bytes that the work may use, in addition to what this process already uses."""

ITEM_SECONDS = 10.0
"""Maximum seconds for one item."""

SECONDS = 60.0
"""Maximum seconds for all items."""

ANSWERS = 64 << 20
"""Maximum bytes of all answers."""

_EXIT_SECONDS = 1.0
"""Seconds for a killed process to disappear: a file system that hangs can block it forever."""

_PIECE = 1 << 16
_MAX_REASON = 200
_PR_SET_PDEATHSIG = 1
_TERMINAL = {signal.SIGINT, signal.SIGTERM}

Work = Callable[[str], Any]


class Failed(NamedTuple):
    """Why an item has no answer, and how many items after it were not tried."""

    reason: str
    untried: int = 0


def each(
    items: Sequence[str], work: Work, seconds: float | None = None
) -> Iterator[tuple[str, Any]]:
    """Yield each item with its answer, or with `Failed`, as soon as it is known.

    Args:
        items: the items, in the order to work on them.
        work: returns the answer for an item as lists, dicts, texts and numbers; may raise
            UnusableFileError. It runs in another process: changes to variables are lost.
        seconds: maximum for all items, if not `SECONDS`.
    """
    end = time.monotonic() + (SECONDS if seconds is None else seconds)
    room = ANSWERS
    rest = list(items)
    while rest:
        done, reason = 0, "its reader ended too early"
        try:
            with _worker(rest, work) as source:
                for line in _lines(source, end, room):
                    room -= len(line)
                    good, answer = json.loads(line)
                    yield rest[done], answer if good else Failed(answer)
                    done += 1
        except _EndedEarlyError as error:
            reason = str(error)
        if done == len(rest):
            return
        item, rest = rest[done], rest[done + 1 :]
        over = time.monotonic() >= end or room <= 0 or len(_held) >= _MAX_HELD
        yield item, Failed(reason, len(rest) if over else 0)
        if over:
            return


class _EndedEarlyError(Exception):
    """The worker ended early; the text says why."""


class _Child:
    def __init__(self, pid: int) -> None:
        self.status: int | None = None
        self._pid = pid

    def ends_within(self, seconds: float) -> bool:
        """Wait for its exit; return whether it has exited. `status` is then waitpid()'s."""
        end = time.monotonic() + seconds
        while self.status is None:
            try:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
            except ChildProcessError:  # other code of the caller has reaped it
                self.status = 0
                break
            if pid:
                self.status = status
            elif time.monotonic() >= end:
                return False
            else:
                time.sleep(0.001)
        return True

    def kill(self) -> None:
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)


_held: list[_Child] = []
"""Killed workers that have not disappeared yet."""

_MAX_HELD = 4
"""Number of them at which no more workers are started."""


@contextmanager
def _worker(items: Sequence[str], work: Work) -> Iterator[int]:
    """Start a worker on the items; inside the block, it sends a line for each.

    Raises:
        _EndedEarlyError: it could not be started, or failed.
    """
    _held[:] = [child for child in _held if not child.ends_within(0)]
    if len(_held) >= _MAX_HELD:
        raise _EndedEarlyError("earlier readers still wait for a file system that is mute")
    source, sink = os.pipe()
    try:
        try:
            child = _fork(sink, items, work)
        finally:
            os.close(sink)
        try:
            yield source
            if child.ends_within(_EXIT_SECONDS) and child.status:
                raise _EndedEarlyError(_why(child.status))
        finally:
            child.kill()
            if not child.ends_within(_EXIT_SECONDS):
                _held.append(child)
    finally:
        os.close(source)


def _fork(sink: int, items: Sequence[str], work: Work) -> _Child:
    parent = os.getpid()
    # Until the child has its own handlers, Ctrl-C must not unwind it through our code.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINAL)
    try:
        pid = os.fork()
        if not pid:
            _serve(sink, parent, items, work)
        return _Child(pid)
    except OSError as error:
        raise _EndedEarlyError(f"no process can be made for it ({error.strerror})") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _lines(source: int, end: float, room: int) -> Iterator[bytes]:
    """Yield the lines that a worker sends, until it has exited.

    Args:
        source: descriptor to read from.
        end: deadline on the clock `time.monotonic`.
        room: maximum number of bytes.

    Raises:
        _EndedEarlyError: it takes too long or sends too much.
    """
    poll = select.poll()
    poll.register(source, select.POLLIN)
    pending: list[bytes] = []
    begun = time.monotonic()
    while True:
        left = min(end, begun + ITEM_SECONDS) - time.monotonic()
        if not poll.poll(1000 * max(0.0, left)):
            raise _EndedEarlyError("reading its file takes too long")
        piece = os.read(source, _PIECE)
        if not piece:
            return
        room -= len(piece)
        if room < 0:
            raise _EndedEarlyError(f"there is more than {ANSWERS >> 20} MiB to tell")
        *whole, last = piece.split(b"\n")
        for line in whole:
            yield b"".join((*pending, line))
            pending.clear()
            begun = time.monotonic()
        pending.append(last)


def _why(status: int) -> str:
    if not os.WIFSIGNALED(status):
        return f"its reader ended with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return "reading its file takes too long"
    name = signal.Signals(number).name if number in list(signal.Signals) else str(number)
    return f"its reader was killed ({name})"


def _serve(sink: int, parent: int, items: Sequence[str], work: Work) -> NoReturn:
    """Run the worker. None of the parent's exit handlers run."""
    status = 1
    try:
        sink = _detach_from_parent(sink)
        _confine(parent)
        for item in items:
            _write_all(sink, _answered(work, item) + b"\n")
        status = 0
    finally:
        os._exit(status)


def _detach_from_parent(sink: int) -> int:
    """Close all descriptors but one, which is returned; ignore Ctrl-C."""
    sink = fcntl.fcntl(sink, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    for link in Path("/proc/self/fd").iterdir():
        if int(link.name) not in (0, 1, 2, sink):
            with suppress(OSError):  # the descriptor that listed them
                os.close(int(link.name))
    for number in _TERMINAL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return sink


def _confine(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY)
    _limit(resource.RLIMIT_CPU, math.ceil(SECONDS))
    _limit(resource.RLIMIT_CORE, 0)
    # If memory runs out anyway, the kernel must not kill a target in the same control group.
    with suppress(OSError):  # read-only in some containers
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit(which: int, most: int) -> None:
    hard = resource.getrlimit(which)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def _answered(work: Work, item: str) -> bytes:
    try:
        return json.dumps([True, work(item)]).encode()
    except UnusableFileError as error:
        reason = str(error)
    except MemoryError:
        reason = "reading its file takes too much memory"
    except Exception as error:  # a failing reader is reported, and loses only its own names
        reason = f"reading its file failed: {type(error).__name__}: {error}"
    return json.dumps([False, reason[:_MAX_REASON]]).encode()


def _write_all(sink: int, data: bytes) -> None:
    while data:
        data = data[os.write(sink, data) :]
