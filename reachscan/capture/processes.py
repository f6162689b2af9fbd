"""Finds processes by an id, or by one of the names that `ps` prints."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from reachscan import errors
from reachscan.capture import target
from reachscan.wording import printable

if TYPE_CHECKING:
    import psutil

_PROC = "/proc"
_LISTED = 8
_MAX_COMMAND = 64 << 10


def resolve(text: str) -> int:
    """Return the id of the process that a text names: an id, or a unique name.

    Raises:
        NoSuchProcessError: no process has that name.
        AmbiguousNameError: several processes have that name.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    return only(text, find(text), _table)


def only(
    name: str,
    found: Sequence[int],
    table: Callable[[Sequence[int]], tuple[str, ...]],
    options: str = "",
) -> int:
    """Return the only process found; if there are several, refuse them with a `table`.

    Args:
        name: what they are called.
        found: their ids.
        table: returns lines that distinguish them.
        options: further options that a command about them takes.
    """
    if len(found) > 1:
        raise errors.AmbiguousNameError(
            f"{len(found)} processes are called '{printable(name)}'",
            f"give the id of one of them instead, such as {found[0]}; to look for leaks in all: "
            f"`reachscan {shlex.quote(name)}{options} --all-processes`",
            details=table(found),
        )
    return found[0]


def find(text: str) -> list[int]:
    """Return the ids of all processes that a text names, in ascending order; at least one.

    Raises:
        NoSuchProcessError: there is no such process.
    """
    if text.isascii() and text.isdigit():
        return [int(text)]
    # An empty name matches nothing, although kernel threads have empty command lines.
    found = sorted(process.pid for process in _called(text)) if text else []
    if not found:
        raise no_process_named(text)
    return found


def no_process_named(name: str) -> errors.NoSuchProcessError:
    """Return the error for a name that no process has."""
    return errors.NoSuchProcessError(
        f"no process is called '{printable(name)}'", "list the processes with `ps -e`"
    )


def _called(name: str) -> Iterator[psutil.Process]:
    # Loading psutil takes as long as scanning a process given by its id.
    import psutil

    for process in psutil.process_iter(["status"]):
        if process.pid == os.getpid() or name not in _names(process.pid):
            continue
        if process.info["status"] != psutil.STATUS_ZOMBIE or target.has_living_threads(process.pid):
            yield process


def _names(pid: int) -> Iterator[str]:
    """Yield the names of a process.

    These are what `ps -e` and `ps -ef` print (in the latter, servers say what role a process has),
    the first word of that, and the name of the program. psutil would read the whole command line,
    which may be of any size.
    """
    try:
        yield os.fsdecode(_head(f"{_PROC}/{pid}/comm").removesuffix(b"\n"))
        yield from names_in(_head(f"{_PROC}/{pid}/cmdline"))
        yield os.path.basename(os.readlink(f"{_PROC}/{pid}/exe"))
    except OSError:
        return  # it has exited, or we may not read it


def names_in(command_line: bytes) -> Iterator[str]:
    """Yield the names of a process that its command line gives, as the kernel stores it."""
    arguments = command_line.rstrip(b"\0").split(b"\0")
    yield os.fsdecode(b" ".join(arguments)).strip()
    first = os.fsdecode(arguments[0])
    yield first
    yield os.path.basename(first)


def _head(path: str) -> bytes:
    """Return the start of a file that may be of any size."""
    with open(path, "rb", buffering=0) as file:
        return file.read(_MAX_COMMAND)


def _table(pids: Sequence[int]) -> tuple[str, ...]:
    """Return lines that distinguish processes of one name: parent, memory and command line."""
    import psutil

    from reachscan.wording import cut, size

    lines = [f"{'PID':>9} {'PARENT':>9} {'MEMORY':>9}  COMMAND"]
    for pid in pids[:_LISTED]:
        try:
            process = psutil.Process(pid)
            parent, memory = process.ppid(), size(process.memory_info().rss)
            command = os.fsdecode(_head(f"{_PROC}/{pid}/cmdline").replace(b"\0", b" ")).strip()
            command = command or f"[{process.name()}]"
        except (psutil.Error, OSError):
            continue  # it has exited meanwhile
        lines.append(f"{pid:>9} {parent:>9} {memory:>9}  {cut(command, 48)}")
    if len(pids) > _LISTED:
        lines.append(f"{'':>9} and {len(pids) - _LISTED} more")
    return tuple(lines)
