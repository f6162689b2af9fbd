"""Opens core files, and decompresses those that systemd or somebody else has compressed."""

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
"""Where the decompressed file lies, without a name: on a disk, for it may be larger than memory."""


_PROGRAMS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\x00": "xz",
    b"\x1f\x8b": "gzip",
}
"""How compressed files begin, and the program that decompresses them."""


@contextmanager
def opened(path: str | Path) -> Iterator[int]:
    """Open a core file; the block gets a descriptor of what is in it, decompressed.

    Raises:
        BadCoreError: it cannot be read, or not be decompressed.
    """
    with ExitStack() as stack:
        try:
            # Not to wait for who writes into a pipe.
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise errors.BadCoreError(
                f"the core file cannot be read: {error.strerror}", "name another file"
            ) from error
        stack.callback(os.close, file)
        program = _decompressor(file)
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
        raise errors.BadCoreError(f"what {program} has compressed is damaged or cut off")
    status = os.fstat(file)
    # What is mapped from files is compared with when the core was written.
    os.utime(plain.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def _write_sparsely(stream: IO[bytes], plain: IO[bytes]) -> None:
    """Copy a stream into a file; zeros, which are most of some core files, become holes."""
    while chunk := stream.read(_CHUNK):
        if chunk == _ZEROS[: len(chunk)]:
            plain.seek(len(chunk), os.SEEK_CUR)
        else:
            plain.write(chunk)
    plain.truncate()
    plain.flush()
