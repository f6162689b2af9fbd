"""Paths on the command line: an unusable one is refused as bad usage, before any scan."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NamedTuple

import click

from reachscan.recording import descriptors

STDOUT = Path("-")
"""The value of `-o` that means stdout."""


class _Use(NamedTuple):
    """What a command does with a file.

    Attributes:
        path: the file.
        name: the option or argument that names it, for people.
        written: it is written, not read.
    """

    path: Path
    name: str
    written: bool


_USES = f"{__name__}.uses"
"""Key of what a command does with files, in the notes of its context."""


def note(path: Path, name: str, context: click.Context, *, written: bool) -> None:
    """Note that an option or argument names a file, and refuse to write what another one names.

    Raises:
        click.UsageError: the file is written, and is also that of another option or argument.
    """
    if path.is_char_device():
        return
    use = _Use(path, name, written)
    uses: list[_Use] = context.meta.setdefault(_USES, [])
    for other in uses:
        if other.name != name and (written or other.written) and _is_same(path, other.path):
            output = use if written else other
            raise click.UsageError(
                f"{other.name} and {name} are the same file, {output.path}; "
                f"name another one for {output.name}",
                context,
            )
    uses.append(use)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one does not exist yet
        return one.resolve() == other.resolve()


def _note(
    path: Path, parameter: click.Parameter | None, context: click.Context | None, *, written: bool
) -> None:
    if parameter and context:
        is_option = isinstance(parameter, click.Option)
        name = parameter.opts[0] if is_option else parameter.human_readable_name
        note(path, name, context, written=written)


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
        path = Path(os.fsdecode(super().convert(value, parameter, context)))
        _note(path, parameter, context, written=False)
        return path


class _Writable(click.Path):
    """A file that exists or can be created.

    Args:
        stream: it may also be a stream that is open already, such as stdout.
    """

    def __init__(self, *, stream: bool) -> None:
        super().__init__(dir_okay=False, writable=True, allow_dash=True, path_type=Path)
        self._stream = stream

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
            why = _write_failure(path, stream=self._stream)
        except OSError as error:  # its directory may not be entered, or its name is too long
            why = f"no file can be written there: {error.strerror}"
        except RuntimeError:  # until Python 3.13
            why = f"no file can be written there: {os.strerror(errno.ELOOP)}"
        if why:
            self.fail(why, parameter, context)
        if path != STDOUT:
            _note(path, parameter, context, written=True)
        return path


def _write_failure(path: Path, *, stream: bool) -> str:
    """Return why a path cannot be written; empty if it can.

    Raises:
        OSError, RuntimeError: the path cannot be examined.
    """
    held = descriptors.link(path)
    if not stream and (held or path == STDOUT):
        return f"a raw scan cannot go to {'stdout' if path == STDOUT else path}; name a file"
    if path == STDOUT:
        return ""
    if held:
        return "" if descriptors.is_writable(held) else f"{path} is not open for writing"
    if path.exists() and not path.is_file():
        return ""
    # A regular file is written under another name in its directory, then renamed.
    folder = path.resolve().parent
    if not folder.is_dir():
        return f"there is no directory {folder}"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"no file can be made in {folder}"


READABLE, WRITABLE, SAVED = _Readable(), _Writable(stream=True), _Writable(stream=False)
