"""Reads untrusted ELF files: they may be damaged, hostile, or no files at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection
from elftools.elf.segments import NoteSegment

from reachscan.naming.untrusted_files import UnusableFileError

_MAX_LINK = 4096

DAMAGE = (
    *(ELFError, DWARFError, ConstructError, ValueError, KeyError, TypeError, IndexError),
    *(AttributeError, NotImplementedError, RecursionError, OverflowError, AssertionError),
)
"""Exceptions of the parsers for files that are damaged or too new."""


@contextmanager
def opened(open_file: Callable[[], BinaryIO]) -> Iterator[ELFFile]:
    """Open an ELF file; any error while reading it inside the block becomes UnusableFileError.

    Args:
        open_file: opens it, see `untrusted_files`.

    Raises:
        UnusableFileError: it cannot be opened, is damaged, or takes too much memory.
    """
    try:
        with open_file() as file:
            yield ELFFile(file)
    except OSError as error:
        raise UnusableFileError(error.strerror or "it cannot be read") from error
    except MemoryError as error:
        raise UnusableFileError("reading its file takes too much memory") from error
    except DAMAGE as error:
        raise UnusableFileError(f"its file is damaged ({type(error).__name__})") from error


def build_id(elf: ELFFile) -> bytes:
    """Return the build id of a file, empty if it has none."""
    for part in _notes(elf):
        if isinstance(part, (NoteSegment, NoteSection)):
            for note in part.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return bytes.fromhex(note["n_desc"])
    return b""


def supplement(elf: ELFFile) -> tuple[bytes, bytes]:
    """Return path and build id of the file that shares parts of the debug information, if any."""
    section = elf.get_section_by_name(".gnu_debugaltlink")
    if section is None or section.data_size > _MAX_LINK:
        return b"", b""
    path, _, build_id = section.data().partition(b"\0")
    return path, build_id


def _notes(elf: ELFFile) -> Iterator[object]:
    """Yield sections and segments with notes, likely ones first: searching all is slow."""
    yield elf.get_section_by_name(".note.gnu.build-id")
    yield from elf.iter_segments("PT_NOTE")
    yield from elf.iter_sections("SHT_NOTE")


class Load(NamedTuple):
    """A loaded segment: its offset in the file, its size there and in memory."""

    offset: int
    file_size: int
    address: int
    memory_size: int


def loads(elf: ELFFile) -> tuple[Load, ...]:
    """Return the segments of a file that the loader maps."""
    return tuple(
        Load(int(s["p_offset"]), int(s["p_filesz"]), int(s["p_vaddr"]), int(s["p_memsz"]))
        for s in elf.iter_segments("PT_LOAD")
    )
