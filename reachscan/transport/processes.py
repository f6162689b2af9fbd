"""Processes of another machine: by what they are called there, and whether they still live."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from reachscan import errors
from reachscan.capture import processes
from reachscan.wording import cut

Ask = Callable[..., bytes | None]
"""Gives a command to the shell there; returns its output, or None if it has failed."""

_ID = re.compile(rb"/proc/([0-9]+)/")
_LISTED = 8
_STATE, _START = 0, 19
"""Of the fields in /proc/PID/stat that follow the name."""


class _Process(NamedTuple):
    """What /proc says of a process there."""

    state: str
    start: int
    names: tuple[str, ...]
    command: str


class Processes:
    """The processes there."""

    def __init__(self, ask: Ask, name: str) -> None:
        """Prepare.

        Args:
            ask: gives a command to the shell there.
            name: of the place, for sentences.
        """
        self._ask, self._name = ask, name

    def resolve(self, name: str) -> int:
        """Return the id of the process that a text means."""
        if name.isascii() and name.isdigit():
            return int(name)
        return processes.only(name, self.find(name), self._table)

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes that a text means, in ascending order; at least one.

        Raises:
            NoSuchProcessError: there is none.
        """
        if name.isascii() and name.isdigit():
            return [int(name)]
        found = sorted(self._called(name)) if name.split() else []
        if not found:
            raise processes.nobody_called(name)
        return found

    def life(self, pid: int) -> Life:
        """Return the life of a process there, from now on.

        Raises:
            NoSuchProcessError: there is none with that id.
        """
        process = self._about(pid)
        if process is None:
            raise errors.NoSuchProcessError(f"there is no process {pid} at {self._name}")
        return Life(pid, process.start, self._start_of)

    def _start_of(self, pid: int) -> int | None:
        process = self._about(pid)
        return process.start if process else None

    def _called(self, name: str) -> Iterator[int]:
        # The shell takes words apart at spaces, and the kernel arguments at zero bytes.
        lines = self._ask("named", name.split()[0]) or b""
        for pid in {int(number) for number in _ID.findall(lines)}:
            process = self._about(pid)
            if process and process.state not in "ZX" and name in process.names:
                yield pid

    def _about(self, pid: int) -> _Process | None:
        parts = (self._ask("about", pid) or b"").split(b"\0", 3)
        fields = parts[0].rpartition(b")")[2].decode("ascii", "replace").split()
        if len(parts) < 4 or len(fields) <= _START or not fields[_START].isdigit():
            return None  # it has ended
        comm, exe = (os.fsdecode(part).removesuffix("\n") for part in parts[1:3])
        names = (comm, *processes.names_in(parts[3]), os.path.basename(exe))  # noqa: PTH119
        command = os.fsdecode(parts[3].replace(b"\0", b" ")).strip() or f"[{comm}]"
        return _Process(fields[_STATE], int(fields[_START]), names, command)

    def _table(self, pids: Sequence[int]) -> tuple[str, ...]:
        """Return lines that tell processes of one name apart."""
        lines = [f"{'PID':>9}  COMMAND"]
        for pid in pids[:_LISTED]:
            process = self._about(pid)
            if process:
                lines.append(f"{pid:>9}  {cut(process.command, 60)}")
        if len(pids) > _LISTED:
            lines.append(f"{'':>9}  and {len(pids) - _LISTED} more")
        return tuple(lines)


class Life:
    """The life of a process there. While there is no connection, it is taken to live on."""

    def __init__(self, pid: int, start: int, start_of: Callable[[int], int | None]) -> None:
        """Prepare.

        Args:
            pid: of the process.
            start: when it was started, in clock ticks of that machine.
            start_of: says that of a process; None if there is none.
        """
        self.pid = pid
        self._start, self._start_of = start, start_of

    def __enter__(self) -> Life:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def ends_within(self, seconds: float) -> bool:
        """Wait so long, as nothing tells of its end before; tell whether it has ended."""
        time.sleep(max(0.0, seconds))
        return self._now() != self._start

    def has_successor(self) -> bool:
        """Tell whether another process has got the id by now."""
        return self._now() not in (None, self._start)

    def _now(self) -> int | None:
        try:
            return self._start_of(self.pid)
        except (errors.ConnectionLostError, errors.UnreachableError):
            return self._start
