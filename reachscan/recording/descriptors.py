"""Names of open descriptors, such as /dev/stdout: what is written there must not replace a file."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

_FOLDER = re.compile(r"(/proc/\d+)(?:/task/\d+)?/fd")
_MAX_LINKS = 40
"""Symbolic links that the kernel follows in one path."""


def link(path: Path) -> Path | None:
    """Return the link in /proc/PID/fd through which a path leads; None if it leads through none."""
    for _ in range(_MAX_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if _FOLDER.fullmatch(str(path.parent)):
            return path
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def is_writable(found: Path) -> bool:
    """Return whether one can write to a descriptor, given by its link."""
    if not _is_ours(found):
        return os.access(found, os.W_OK)
    try:
        return fcntl.fcntl(int(found.name), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False  # it is closed


def duplicate(found: Path) -> int:
    """Return a descriptor that writes where another one, given by its link, would write next.

    Raises:
        OSError: it is closed, or belongs to a process that may not be looked into.
    """
    if _is_ours(found):
        return os.dup(int(found.name))
    return os.open(found, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


def _is_ours(found: Path) -> bool:
    folder = _FOLDER.fullmatch(str(found.parent))
    return folder is not None and folder[1] == os.path.realpath("/proc/self")
