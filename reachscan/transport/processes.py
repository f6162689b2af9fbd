"""Processes of another machine: finds them by name, and notices their end."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Optional

from reachscan import errors
from reachscan.capture import interrupts, processes
from reachscan.wording import cut

Ask = Callable[..., Optional[bytes]]
"""Runs a command in the shell there; returns its output, or None if it failed."""

_ID = re.compile(rb"/proc/([0-9]+)/")
_LISTED = 8
_STATE, _START = 0, 19
"""Index among the fields in /proc/PID/stat that follow the name."""


class _Process(NamedTuple):
    """What /proc there says about a process."""

    state: str
    start: int
    names: tuple[str, ...]
    command: str


class Processes:
    """The processes of a machine."""

    def __init__(self, ask: Ask, name: str) -> None:
        """Prepare.

        Args:
            ask: runs a command in the shell there.
            name: name of the place, for messages.
        """
        self._ask, self._name = ask, name

    def resolve(self, name: str) -> int:
        """Return the id of the process that a text names."""
        if name.isascii() and name.isdigit():
            return int(name)
        there = f" --on {shlex.quote(self._name)}"
        return processes.only(name, self.find(name), self._table, there)

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes that a text names, in ascending order; at least one.

        Raises:
            NoSuchProcessError: there is no such process.
        """
        if name.isascii() and name.isdigit():
            return [int(name)]
        found = sorted(self._called(name)) if name.split() else []
        if not found:
            raise processes.no_process_named(name)
        return found

    def life(self, pid: int) -> Life:
        """Return the life of a process there, from now on.

        Raises:
            NoSuchProcessError: no process has that id.
        """
        process = self._about(pid)
        if process is None:
            raise errors.NoSuchProcessError(f"there is no process {pid} at {self._name}")
        return Life(pid, process.start, self._start_of, lambda: self._ask("ran", pid) or b"")

    def _start_of(self, pid: int) -> int | None:
        process = self._about(pid)
        return process.start if process else None

    def _called(self, name: str) -> Iterator[int]:
        # The shell splits words at spaces, the kernel splits arguments at zero bytes.
        lines = self._ask("named", name.split()[0]) or b""
        for pid in {int(number) for number in _ID.findall(lines)}:
            process = self._about(pid)
            if process and process.state not in "ZX" and name in process.names:
                yield pid

    def _about(self, pid: int) -> _Process | None:
        parts = (self._ask("about", pid) or b"").split(b"\0", 3)
        fields = parts[0].rpartition(b")")[2].decode("ascii", "replace").split()
        if len(parts) < 4 or len(fields) <= _START or not fields[_START].isdigit():
            return None  # it has exited
        comm, exe = (os.fsdecode(part).removesuffix("\n") for part in parts[1:3])
        names = (comm, *processes.names_in(parts[3]), os.path.basename(exe))  # noqa: PTH119
        command = os.fsdecode(parts[3].replace(b"\0", b" ")).strip() or f"[{comm}]"
        return _Process(fields[_STATE], int(fields[_START]), names, command)

    def _table(self, pids: Sequence[int]) -> tuple[str, ...]:
        """Return lines that distinguish processes of one name."""
        lines = [f"{'PID':>9}  COMMAND"]
        for pid in pids[:_LISTED]:
            process = self._about(pid)
            if process:
                lines.append(f"{pid:>9}  {cut(process.command, 60)}")
        if len(pids) > _LISTED:
            lines.append(f"{'':>9}  and {len(pids) - _LISTED} more")
        return tuple(lines)


class Life:
    """The life of a process there. Without a connection, the process counts as alive."""

    def __init__(
        self,
        pid: int,
        start: int,
        start_of: Callable[[int], int | None],
        activity: Callable[[], bytes],
    ) -> None:
        """Prepare.

        Args:
            pid: the process's id.
            start: when it started, in clock ticks of that machine.
            start_of: returns when a process started; None if it does not exist.
            activity: returns what `activity` does.
        """
        self.pid = pid
        self._activity = activity
        self._start, self._start_of = start, start_of

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ends_within(self, seconds: float) -> bool:
        """Wait `seconds`, since nothing reports its end earlier; return whether it has exited."""
        for part in interrupts.in_parts(seconds):
            time.sleep(part)
        return self._now() != self._start

    def has_successor(self) -> bool:
        """Return whether the id belongs to another process by now."""
        return self._now() not in (None, self._start)

    def activity(self) -> bytes:
        """Return something that changes whenever a thread runs; nothing if it is not known."""
        return self._activity()

    def _now(self) -> int | None:
        try:
            return self._start_of(self.pid)
        except (errors.ConnectionLostError, errors.UnreachableError):
            return self._start
