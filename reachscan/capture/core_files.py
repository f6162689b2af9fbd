"""Opens core files, and decompresses them if necessary."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from reachscan import errors

_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)
_DISK = "/var/tmp"
"""Holds the decompressed file, without a name; on disk, since it may be larger than memory."""


_PROGRAMS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"\x1f\x8b": "gzip",
}
"""First bytes of compressed files, and the program that decompresses each kind."""


@contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """Open a core file; the block gets a descriptor of the decompressed contents.

    Raises:
        BadCoreError: it cannot be read or decompressed.
    """
    with ExitStack() as stack:
        try:
            # Do not wait for a pipe's writer.
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, file)
            program = _decompressor(file)
        except OSError as error:
            raise errors.BadCoreError(
                f"the core file cannot be read: {error.strerror}", "name another file"
            ) from error
        if program is None:
            yield file
            return
        plain = stack.enter_context(tempfile.TemporaryFile(dir=_folder()))
        _decompress(file, program, plain)
        yield plain.fileno()


def _decompressor(file: int) -> str | None:
    """Return the program that decompresses a file, None if it is not compressed."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        return None
    begin = os.pread(file, max(map(len, _PROGRAMS)), 0)
    return next((name for magic, name in _PROGRAMS.items() if begin.startswith(magic)), None)


def _folder() -> str | None:
    return _DISK if Path(_DISK).is_dir() else None


def _decompress(file: int, program: str, plain: IO[bytes]) -> None:
    path = shutil.which(program)
    if path is None:
        raise errors.BadCoreError(
            f"it is compressed with {program}, and there is no program of that name here",
            f"install {program}, or decompress it elsewhere",
        )
    with subprocess.Popen(
        [path, "-dc"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout is not None
        try:
            _write_sparsely(running.stdout, plain)
        except OSError as error:
            running.kill()
            raise errors.BadCoreError(
                f"it cannot be decompressed: {error.strerror}",
                f"make room in {_folder() or tempfile.gettempdir()}, or decompress it elsewhere",
            ) from error
    if running.returncode:
        raise errors.BadCoreError(f"the {program} data is damaged or truncated")
    status = os.fstat(file)
    # Mapped files are compared with the time at which the core was written.
    os.utime(plain.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _write_sparsely(stream: IO[bytes], plain: IO[bytes]) -> None:
    """Copy a stream into a file. Zeros become holes: some core files hold little else."""
    while chunk := stream.read(_CHUNK):
        if chunk == _ZEROS[: len(chunk)]:
            plain.seek(len(chunk), os.SEEK_CUR)
        else:
            plain.write(chunk)
    plain.truncate()
    plain.flush()
