"""Finds the separate file with a module's symbols and types.

GDB documents their locations ("Debugging Information in Separate Files"): by build id below
/usr/lib/debug/.build-id (or .build-id, in a folder of symbols alone), or under the name in the
section .gnu_debuglink: beside the module, in .debug beside it, or in the same folder below
/usr/lib/debug. Such files may share parts in another file, which .gnu_debugaltlink names by path
and build id.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import PurePosixPath
from typing import IO, NamedTuple

from elftools.elf.elffile import ELFFile

from reachscan.naming import debug_servers, elf_files
from reachscan.naming.untrusted_files import Root, UnusableFileError, open_below

DEBUG_FOLDER = PurePosixPath("usr/lib/debug")
_BUILD_ID_FOLDERS = (DEBUG_FOLDER / ".build-id", PurePosixPath(".build-id"))
MODULE, DEBUG = "", ".debug"
"""Suffixes of files that are named by build id."""
_CHUNK = 1 << 20
_MAX_CHECKED = 1 << 30
_MAX_LINK = 4096
_MAX_BUILD_ID = 64


class _Link(NamedTuple):
    """What .gnu_debuglink says: the name of the debug file, and the CRC-32 of its bytes."""

    name: str
    checksum: int


@contextmanager
def opened(module: ELFFile, path: str, roots: Sequence[Root]) -> Iterator[ELFFile | None]:
    """Open the separate debug file of a module; None if there is no matching one.

    Args:
        module: the module's own file.
        path: the module's path, as the process sees it.
        roots: root folders to search, best first.
    """
    with ExitStack() as stack:
        yield _find(module, path, roots, stack)


@contextmanager
def supplement(debug: ELFFile, path: str, roots: Sequence[Root]) -> Iterator[ELFFile | None]:
    """Open the file that a debug file shares parts with; None if there is no matching one.

    Args:
        debug: the file with the debug information.
        path: the module's path, as the process sees it.
        roots: root folders to search, best first.
    """
    name, build_id = elf_files.supplement(debug)
    if not name:
        yield None
        return
    # A relative path starts at the debug file's folder.
    named = PurePosixPath("/", _own_folder(debug, path), name.decode("utf-8", "surrogateescape"))
    with ExitStack() as stack:
        names = [*by_build_id(build_id, DEBUG), named]
        places = _places(names, roots, build_id)
        yield _first(places, stack, lambda elf: elf_files.build_id(elf) == build_id)


def _own_folder(debug: ELFFile, path: str) -> PurePosixPath:
    """Return the usual folder of a debug file."""
    by_id = list(by_build_id(elf_files.build_id(debug), DEBUG))
    return (by_id[0] if by_id else DEBUG_FOLDER / path.lstrip("/")).parent


def _find(module: ELFFile, path: str, roots: Sequence[Root], stack: ExitStack) -> ELFFile | None:
    """Return the debug file; `stack` will close it."""
    build_id, link = elf_files.build_id(module), _link(module)
    names = [*by_build_id(build_id, DEBUG), *(_by_link(link, path) if link else ())]
    places = _places(names, roots, build_id)
    return _first(places, stack, lambda elf: _belongs(elf, build_id, link))


def _places(
    names: Sequence[PurePosixPath], roots: Sequence[Root], build_id: bytes
) -> list[tuple[Root, str]]:
    """Return candidate paths, best first; a file fetched from a server comes last."""
    fetched = debug_servers.kept(build_id)
    here = [(root, str(name)) for name in names for root in roots]
    return [*here, fetched] if fetched else here


def _first(
    places: Sequence[tuple[Root, str]],
    stack: ExitStack,
    belongs: Callable[[ELFFile], bool],
) -> ELFFile | None:
    """Return the first of several files that exists and matches; `stack` will close it."""
    for place in places:
        try:
            with ExitStack() as attempt:
                opener = partial(open_below, *place)
                elf: ELFFile = attempt.enter_context(elf_files.opened(opener))
                if belongs(elf):
                    stack.enter_context(attempt.pop_all())
                    return elf
        except UnusableFileError:
            continue  # usually because it does not exist
    return None


def _link(module: ELFFile) -> _Link | None:
    section = module.get_section_by_name(".gnu_debuglink")
    if section is None or section.data_size > _MAX_LINK:
        return None
    name, _, rest = section.data().partition(b"\0")
    text = name.decode("utf-8", "surrogateescape")
    # The module chose the name: it must not lead out of the searched folders.
    if text in ("", ".", "..") or "/" in text:
        return None
    return _Link(text, int.from_bytes(rest[-4:], "little"))


def by_build_id(build_id: bytes, kind: str) -> Iterator[PurePosixPath]:
    """Yield candidate paths of a file with that build id, below a root folder.

    Args:
        build_id: the module's build id.
        kind: `MODULE` for the module itself, `DEBUG` for its debug file.
    """
    text = build_id.hex()
    if 1 < len(build_id) <= _MAX_BUILD_ID:
        for folder in _BUILD_ID_FOLDERS:
            yield folder / text[:2] / f"{text[2:]}{kind}"


def _by_link(link: _Link, path: str) -> Iterator[PurePosixPath]:
    folder = PurePosixPath(path.lstrip("/")).parent
    if ".." not in folder.parts:
        yield folder / link.name
        yield folder / ".debug" / link.name
        yield DEBUG_FOLDER / folder / link.name


def _belongs(debug: ELFFile, build_id: bytes, link: _Link | None) -> bool:
    if build_id:
        return elf_files.build_id(debug) == build_id
    return link is not None and _checksum(debug.stream) == link.checksum


def _checksum(file: IO[bytes]) -> int | None:
    """Return the CRC-32 of a file; None if it is too large."""
    if file.seek(0, os.SEEK_END) > _MAX_CHECKED:
        return None
    file.seek(0)
    found = 0
    while chunk := file.read(_CHUNK):
        found = zlib.crc32(chunk, found)
    return found
