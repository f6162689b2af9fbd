"""Opens ELF files that are not trusted: any may be damaged, hostile, or no file at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from elftools.elf.segments import NoteSegment

_PARSERS_OWN = (ELFError, DWARFError, ConstructError)
_DAMAGE = (*_PARSERS_OWN, ValueError, KeyError, TypeError, IndexError, AttributeError)
"""What the parsers raise when they trip over a damaged file, besides the two below."""


class UnusableFileError(Exception):
    """A file that cannot be used; the text says why."""


@contextmanager
def opened(path: Path) -> Iterator[ELFFile]:
    """Open an ELF file; whatever goes wrong while it is read inside the block has one name.

    Raises:
        UnusableFileError: it cannot be opened, or is damaged.
    """
    try:
        with _open_regular(path) as file:
            yield ELFFile(file)
    except OSError as error:
        raise UnusableFileError(error.strerror or "it cannot be read") from error
    except (*_DAMAGE, OverflowError, MemoryError, RecursionError) as error:
        raise UnusableFileError(f"its file is damaged ({type(error).__name__})") from error


def _open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; never hang on, or disturb, a device or a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(0, "it is no regular file")
    return file


def build_id(elf: ELFFile) -> bytes:
    """Return the build id of a file, empty if it has none."""
    for part in (*elf.iter_segments("PT_NOTE"), *elf.iter_sections("SHT_NOTE")):
        if isinstance(part, NoteSegment | NoteSection):
            for note in part.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return bytes.fromhex(note["n_desc"])
    return b""


class Load(NamedTuple):
    """A segment that is mapped: where it begins in the file, its bytes there and in memory."""

    offset: int
    file_size: int
    address: int
    memory_size: int


def loads(elf: ELFFile) -> tuple[Load, ...]:
    """Return the segments of a file that are mapped when it is loaded."""
    return tuple(
        Load(int(s["p_offset"]), int(s["p_filesz"]), int(s["p_vaddr"]), int(s["p_memsz"]))
        for s in elf.iter_segments("PT_LOAD")
    )
