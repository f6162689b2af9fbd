"""Checks whether a command can be started with the recorder preloaded."""

from __future__ import annotations

import os
import shutil
import stat
import struct
from typing import BinaryIO, NamedTuple

from reachscan import errors

_ELF = b"\x7fELF"
_ELF_64 = 2
_INTERPRETER = 3  # PT_INTERP
_HEADER = 64
_MAX_LINE = 256
"""Bytes of a script's first line that the kernel reads."""
_MAX_INTERPRETERS = 5
"""Levels of interpreters that are scripts themselves; the kernel follows no more."""


def check(command: str) -> None:
    """Refuse a command that cannot be recorded. For a script, the interpreter is recorded.

    Raises:
        CommandNotFoundError: it does not exist, or its interpreter is missing.
        CommandNotExecutableError: the file may not be executed.
        UnrecordableError: the loader would not preload the recorder.
    """
    path = shutil.which(command)
    if path is None:
        raise _unusable(command)
    for _ in range(_MAX_INTERPRETERS):
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                interpreter = _interpreter(file)
                if interpreter is None:
                    _refuse_unloadable(path, file)
                    return
        except PermissionError:
            return  # executable but not readable: its kind is unknown
        except FileNotFoundError as error:
            raise errors.CommandNotFoundError(
                f"the interpreter of {command}, {path}, is missing"
            ) from error
        path = interpreter


def _unusable(command: str) -> errors.ReachscanError:
    """Return why a command, which is no executable file, cannot be started."""
    if not command:
        return errors.CommandNotFoundError("the name of the command is empty")
    try:
        mode = os.stat(command).st_mode if os.sep in command else None  # noqa: PTH116
    except PermissionError as error:
        return errors.CommandNotExecutableError(f"cannot start {command}: {error.strerror}")
    except OSError:
        mode = None
    if mode is None:
        return errors.CommandNotFoundError(f"there is no command {command}")
    what = "a directory" if stat.S_ISDIR(mode) else "not executable"
    return errors.CommandNotExecutableError(f"{command} is {what}")


def _interpreter(file: BinaryIO) -> str | None:
    """Return the interpreter that a script's first line names; None for other files."""
    line = file.read(_MAX_LINE).partition(b"\n")[0]
    file.seek(0)
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None


def _refuse_unloadable(path: str, file: BinaryIO) -> None:
    head = file.read(_HEADER)
    if len(head) < _HEADER or not head.startswith(_ELF):
        return  # the kernel decides whether it can be started
    if head[4] != _ELF_64 or head[18:20] != _own_machine():
        raise errors.UnrecordableError(f"{path} is no 64-bit program of this processor", "")
    if _INTERPRETER not in _segment_types(head, file):
        raise errors.UnrecordableError(
            f"{path} is linked statically, so there is no loader that would load the recorder",
            "start it without reachscan: `reachscan attach PID` records it from then on",
        )
    if gain := _gained_privilege(path):
        raise errors.UnrecordableError(
            f"{path} runs with {gain.what}, and the loader ignores preloaded libraries then",
            gain.remedy,
        )


def _own_machine() -> bytes:
    with open("/proc/self/exe", "rb") as file:  # noqa: PTH123
        return file.read(_HEADER)[18:20]


def _segment_types(head: bytes, file: BinaryIO) -> list[int]:
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    file.seek(offset)
    table = file.read(size * count)
    starts = range(0, len(table) - size + 1, size) if size >= 4 else range(0)
    return [int.from_bytes(table[at : at + 4], "little") for at in starts]


class _Privilege(NamedTuple):
    what: str
    remedy: str


def _gained_privilege(path: str) -> _Privilege | None:
    """Return what a program may do that its caller may not."""
    status = os.stat(path)  # noqa: PTH116
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return _Privilege("the rights of another user", "run reachscan as that user")
    if status.st_mode & stat.S_ISGID and status.st_gid != os.getgid():
        return _Privilege("the rights of another group", "run reachscan as a member of that group")
    if os.getuid() != 0 and "security.capability" in os.listxattr(path):
        return _Privilege("capabilities of its own (see getcap(8))", "run reachscan as root")
    return None
