"""Opens regular files by untrusted paths, which come from the target or from a file.

Symbolic links may lead such a path anywhere. Merely opening a pipe or a device can have effects,
and so can reading one of the kernel's pseudo files. Paths are therefore resolved inside the root
folder of the process that named them, and files are examined before they are opened. Even so, a
file system may never answer: do this where it can be abandoned (`confined`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

LARGEST = 16 << 30
"""Size of the largest file that is opened, in bytes; pseudo files claim any size."""

_SUPERUSER = 0
_OPENAT2 = 437  # Linux 5.6, the same number for all processors
_NO_MAGIC_LINKS, _IN_ROOT = 0x02, 0x10  # RESOLVE_...
_LOOK = os.O_PATH | os.O_CLOEXEC
_NO_OPENAT2 = (errno.ENOSYS, errno.EPERM)  # the latter in containers that do not know it


class UnusableFileError(Exception):
    """The file cannot be used; the message says why."""


class Root(NamedTuple):
    """A root folder, and whose files in it may be read.

    A process must not use us to read files that it could not read itself: a file that is not
    readable for everyone is read only if it belongs to `user`, or if `user` is root.
    """

    folder: Path
    user: int


def open_below(root: Root, path: str) -> BinaryIO:
    """Open the regular file that a path means to a process with that root folder.

    Raises:
        UnusableFileError: it does not exist, or must not be read.
    """
    try:
        with ExitStack() as opened:
            folder = os.open(root.folder, _LOOK | os.O_DIRECTORY)
            opened.callback(os.close, folder)
            found = _resolve(folder, path)
            opened.callback(os.close, found)
            status = os.fstat(found)
            if not status.st_mode & stat.S_IROTH and root.user not in (status.st_uid, _SUPERUSER):
                raise UnusableFileError("it is private to another user")
            return _open_regular(found, status)
    except OSError as error:
        raise _unusable(error) from error


def open_mapped(pid: int, start: int, end: int) -> BinaryIO:
    """Open the file itself that a process has mapped at [start, end), even if it was deleted.

    Raises:
        UnusableFileError: it must not be read, or we lack the privilege to open it this way.
    """
    try:
        found = os.open(f"/proc/{pid}/map_files/{start:x}-{end:x}", _LOOK)
        try:
            return _open_regular(found, os.fstat(found))
        finally:
            os.close(found)
    except OSError as error:
        raise _unusable(error) from error


def _unusable(error: OSError) -> UnusableFileError:
    return UnusableFileError(error.strerror or "it cannot be read")


def _open_regular(found: int, status: os.stat_result) -> BinaryIO:
    """Open the file of an O_PATH descriptor."""
    if not stat.S_ISREG(status.st_mode):
        raise UnusableFileError("it is no regular file")
    # Pseudo files that have effects when read claim to be empty.
    if not 0 < status.st_size <= LARGEST:
        raise UnusableFileError(f"its file claims to have {status.st_size} bytes")
    # Do not wait for a process that holds a lease on it.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(f"/proc/self/fd/{found}", flags), "rb")


class _OpenHow(ctypes.Structure):
    """struct open_how of <linux/openat2.h>."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def _resolve(folder: int, path: str) -> int:
    try:
        return _openat2(folder, path)
    except OSError as error:
        if error.errno not in _NO_OPENAT2:
            raise
    return _without_links(folder, path)


def _openat2(folder: int, path: str) -> int:
    how = _OpenHow(_LOOK, 0, _IN_ROOT | _NO_MAGIC_LINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    found: int = libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_long(folder),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found


def _without_links(folder: int, path: str) -> int:
    """Resolve a path on a kernel without openat2: refuse symbolic links and `..`."""
    found = os.dup(folder)
    for part in Path(path.lstrip("/")).parts:
        within = found
        try:
            if part == "..":
                raise UnusableFileError("its path leads upwards")
            found = os.open(part, _LOOK | os.O_NOFOLLOW, dir_fd=within)
        finally:
            os.close(within)
    return found
