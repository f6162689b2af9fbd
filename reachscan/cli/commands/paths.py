"""Paths on the command line: an unusable one is refused as bad usage, before any scan."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import click

STDOUT = Path("-")
"""The value of `-o` that means stdout."""


class _Readable(click.Path):
    """A file that can be read."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        parameter: click.Parameter | None,
        context: click.Context | None,
    ) -> Path:
        """Return the path.

        Raises:
            click.BadParameter: nothing can be read there.
        """
        try:
            Path(os.fsdecode(value)).stat()
        except FileNotFoundError:
            pass  # click says so, as it does whatever else is in the way
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.fail(f"{os.fsdecode(value)} cannot be read: {why}", parameter, context)
        return Path(os.fsdecode(super().convert(value, parameter, context)))


class _Writable(click.Path):
    """A file that exists or can be created."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=True, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        parameter: click.Parameter | None,
        context: click.Context | None,
    ) -> Path:
        """Return the path, which can be written.

        Raises:
            click.BadParameter: nothing can be written there.
        """
        if not value:
            self.fail("the name is empty", parameter, context)
        path = Path(os.fsdecode(super().convert(value, parameter, context)))
        try:
            why = "" if path == STDOUT else _write_failure(path)
        except OSError as error:  # its directory may not be entered, or its name is too long
            why = f"no file can be written there: {error.strerror}"
        except RuntimeError:  # until Python 3.13
            why = f"no file can be written there: {os.strerror(errno.ELOOP)}"
        if why:
            self.fail(why, parameter, context)
        return path


def _write_failure(path: Path) -> str:
    """Return why a path cannot be written; empty if it can.

    Raises:
        OSError, RuntimeError: the path cannot be examined.
    """
    if path.exists() and not path.is_file():
        return ""
    # A regular file is written under another name in its directory, then renamed.
    folder = path.resolve().parent
    if not folder.is_dir():
        return f"there is no directory {folder}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"no file can be made in {folder}"


READABLE, WRITABLE = _Readable(), _Writable()
