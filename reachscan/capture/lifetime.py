"""Follows one process: notices its end, and does not confuse it with a later one of the same id."""

from __future__ import annotations

import os
import select
from pathlib import Path

from reachscan import errors
from reachscan.capture import interrupts

_PROC = Path("/proc")
_START = 19  # of the fields in /proc/PID/stat that follow the name


class Lifetime:
    """The life of a process, from now on; a context manager.

    Raises:
        NoSuchProcessError: no process has that id.
        UnsupportedKernelError: the kernel cannot report the end of a process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError as error:
            raise errors.NoSuchProcessError(f"there is no process {pid}") from error
        except (OSError, AttributeError) as error:
            raise errors.UnsupportedKernelError(
                f"the end of process {pid} cannot be noticed: {error}"
            ) from error
        self._start = _start(pid)

    def __enter__(self) -> Lifetime:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process has exited."""
        return self._descriptor

    def ends_within(self, seconds: float) -> bool:
        """Wait for the process to exit, but no longer than `seconds`; return whether it has."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return any(poll.poll(part * 1000) for part in interrupts.in_parts(seconds))

    def has_successor(self) -> bool:
        """Return whether the id belongs to another process by now."""
        start = _start(self.pid)
        return start is not None and start != self._start

    def activity(self) -> bytes:
        """Return how long each thread has run, and how often; nothing if the kernel does not say.

        This changes when a thread has run, if only until it slept again.
        """
        try:
            tasks = sorted((_PROC / str(self.pid) / "task").iterdir())
            return b"".join(
                task.name.encode() + (task / "schedstat").read_bytes() for task in tasks
            )
        except OSError:
            return b""


def _start(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it does not exist."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", "backslashreplace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is the only field that may hold spaces or parentheses.
    return int(stat.rpartition(")")[2].split()[_START])
