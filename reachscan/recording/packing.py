"""Saved scans that are packed with gzip."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reachscan import errors

_SUFFIX = ".gz"
_MAGIC = b"\x1f\x8b"
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


class Packer:
    """Packs what is written to a file, if the file's name says so."""

    def __init__(self, path: Path) -> None:
        self._stream = zlib.compressobj(wbits=_GZIP_FORMAT) if path.suffix == _SUFFIX else None

    def pack(self, data: bytes) -> bytes:
        """Return what is to be written now."""
        return self._stream.compress(data) if self._stream else data

    def rest(self) -> bytes:
        """Return what is to be written last."""
        return self._stream.flush() if self._stream else b""


@contextmanager
def opened(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file to read its contents, unpacked if they are packed, whatever its name is.

    Raises:
        OSError: it cannot be read.
        StreamError: it is packed, and damaged or truncated.
    """
    with open(path, "rb") as file:  # noqa: PTH123  # str is accepted, too
        if not file.peek(len(_MAGIC)).startswith(_MAGIC):
            yield file
            return
        try:
            yield io.BufferedReader(gzip.GzipFile(fileobj=file))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise errors.StreamError(
                f"{path}: it is packed with gzip, and damaged or cut off"
            ) from error
