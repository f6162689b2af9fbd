"""Writes files that appear complete or not at all, and saves raw streams to them."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from reachscan import errors
from reachscan.recording import descriptors, model, wire
from reachscan.recording.packing import Packer

PRIVATE = 0o600
"""Mode of saved streams, which contain memory of the target."""


class OutputFile:
    """A file that is written under a temporary name in its directory and renamed once complete.

    Anything but a regular file (a pipe, /dev/null) is written directly; so is an open descriptor
    (/dev/stdout), whatever is behind it.

    Args:
        path: the final name.
        mode: permissions of the file; None for the default.

    Raises:
        OutputError: it cannot be written there; nothing is left behind.
    """

    def __init__(self, path: Path, mode: int | None = None) -> None:
        self._path = path
        self._temporary: Path | None = None
        try:
            held = descriptors.link(path)
            self._file = _opened(held) if held else self._open(path.resolve(), mode)
        except OSError as error:
            raise self._refusal(error) from error

    def _open(self, path: Path, mode: int | None) -> BinaryIO:
        if path.exists() and not path.is_file():
            return path.open("wb")
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", dir=path.parent)
        self._temporary = Path(name)
        os.fchmod(descriptor, _usual_mode(path) if mode is None else mode)
        return os.fdopen(descriptor, "wb")

    def write(self, data: bytes) -> None:
        """Append to the file.

        Raises:
            OutputError: the disk is full or failing; the file has been removed.
        """
        try:
            self._file.write(data)
        except OSError as error:
            self.discard()
            raise self._refusal(error) from error

    def commit(self) -> None:
        """Complete the file and give it its final name.

        Raises:
            OutputError: the disk is full or failing; the file has been removed.
        """
        try:
            self._file.close()
            if self._temporary:
                self._temporary.replace(self._path.resolve())
                self._temporary = None
        except OSError as error:
            self.discard()
            raise self._refusal(error) from error

    def discard(self) -> None:
        """Remove the file. Does nothing after `commit`."""
        # A write error no longer matters: the file is about to be removed.
        with contextlib.suppress(OSError):
            self._file.close()
        if self._temporary:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    def _refusal(self, error: OSError) -> errors.OutputError:
        return errors.OutputError(f"cannot write {self._path}: {error.strerror}")


def _opened(held: Path) -> BinaryIO:
    return os.fdopen(descriptors.duplicate(held), "wb")


def _usual_mode(path: Path) -> int:
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


class StreamSaver:
    """Saves the records of a scan as they pass through; completed once they are named.

    They are packed if the name of the file ends in `.gz`. A full disk does not stop the scan: the
    error is raised when the stream is completed.
    """

    def __init__(self, path: Path) -> None:
        self._file = OutputFile(path, PRIVATE)
        self._packer = Packer(path)
        self._held: list[wire.Frame] = []
        self._error: errors.OutputError | None = None

    def keep(self, frames: Iterable[wire.Frame]) -> Iterator[wire.Frame]:
        """Pass records on while saving them."""
        for frame in frames:
            if frame.type in (wire.SNAPSHOT, wire.FINAL):
                self._held.append(frame)
            elif frame.type != wire.PROGRESS:
                self._write(wire.frame_bytes(frame))
            yield frame

    def complete(self, found: model.Findings) -> None:
        """Add the findings, so that a report on any machine is the same.

        Raises:
            OutputError: it cannot be written, or could not earlier; nothing is left behind.
        """
        for warning in found.warnings:
            row = {"code": warning.code, "message": warning.message}
            self._write(wire.encode(wire.WARNING, row))
        rows = ((address, *found.names[address]) for address in sorted(found.names))
        for frame in wire.row_frames(wire.NAMES, rows):
            self._write(wire.frame_bytes(frame))
        for frame in self._held:
            if frame.type == wire.SNAPSHOT:
                body = wire.parse(frame)
                body.phases.extend(found.phases)
                self._write(wire.encode(wire.SNAPSHOT, body))
            else:
                self._write(wire.frame_bytes(frame))
        self._put(self._packer.rest())
        if self._error:
            raise self._error
        self._file.commit()

    def discard(self) -> None:
        """Remove the file. Does nothing after `complete`."""
        self._file.discard()

    def _write(self, data: bytes) -> None:
        self._put(self._packer.pack(data))

    def _put(self, data: bytes) -> None:
        if self._error:
            return
        try:
            self._file.write(data)
        except errors.OutputError as error:
            self._error = error
