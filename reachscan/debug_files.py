"""Finds the separate file in which a distribution keeps the symbols and types of a module.

GDB documents where they lie ("Debugging Information in Separate Files"): by build id below
/usr/lib/debug/.build-id, or under the name that the section .gnu_debuglink gives, beside the
module, in .debug beside it, or in the same folder below /usr/lib/debug.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from elftools.elf.elffile import ELFFile

from reachscan import elf_files
from reachscan.elf_files import UnusableFileError

DEBUG_FOLDER = "usr/lib/debug"
_CHUNK = 1 << 20


@contextmanager
def opened(module: ELFFile, path: str, roots: Sequence[Path]) -> Iterator[ELFFile | None]:
    """Open the separate debug file of a module; None if there is none that belongs to it.

    Args:
        module: the module's own file.
        path: of the module, as the process sees it.
        roots: where to look: root folders of file systems, best first.
    """
    found = _find(module, path, roots)
    if found is None:
        yield None
        return
    with elf_files.opened(found) as elf:
        yield elf


def _find(module: ELFFile, path: str, roots: Sequence[Path]) -> Path | None:
    own_id = elf_files.build_id(module)
    for candidate in _by_build_id(own_id, roots):
        if _has_build_id(candidate, own_id):
            return candidate
    link = module.get_section_by_name(".gnu_debuglink")
    if link is None:
        return None
    name, _, rest = link.data().partition(b"\0")
    checksum = int.from_bytes(rest[-4:], "little")
    for candidate in _by_name(name.decode("utf-8", "surrogateescape"), path, roots):
        if _has_build_id(candidate, own_id) or _has_checksum(candidate, checksum):
            return candidate
    return None


def _by_build_id(build_id: bytes, roots: Sequence[Path]) -> Iterator[Path]:
    text = build_id.hex()
    if len(text) > 2:
        for root in roots:
            yield root / DEBUG_FOLDER / ".build-id" / text[:2] / f"{text[2:]}.debug"


def _by_name(name: str, path: str, roots: Sequence[Path]) -> Iterator[Path]:
    folder = Path(path.lstrip("/")).parent
    # The name is the module's word: it must not lead out of the folders that are looked at.
    if not name or "/" in name or ".." in folder.parts:
        return
    for root in roots:
        yield root / folder / name
        yield root / folder / ".debug" / name
        yield root / DEBUG_FOLDER / folder / name


def _has_build_id(path: Path, build_id: bytes) -> bool:
    if not build_id or not path.is_file():
        return False
    try:
        with elf_files.opened(path) as elf:
            return elf_files.build_id(elf) == build_id
    except UnusableFileError:
        return False


def _has_checksum(path: Path, checksum: int) -> bool:
    """Tell whether the CRC-32 of a file is this one."""
    if not path.is_file():
        return False
    found = 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                found = zlib.crc32(chunk, found)
    except OSError:
        return False
    return found == checksum
