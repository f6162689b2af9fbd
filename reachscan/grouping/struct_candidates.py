"""Finds structs that blocks without a type could be, by size and by the places of pointers."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile

from reachscan.capture.sysroot import Sysroot
from reachscan.grouping.groups import Folding
from reachscan.grouping.signatures import DATA, FIRST_PLACE, HEAP, INT, TEXT
from reachscan.naming import confined, dwarf, type_names
from reachscan.naming.dwarf import Struct
from reachscan.naming.module_files import ModuleFiles
from reachscan.recording import model

SHOWN = 3
"""Maximum number of candidates of each group, the most likely ones."""

DEFAULT_CANDIDATE_BYTES = 128 << 10
"""Bytes of debug information that are read by default: about a quarter of a second's work. Files
are read completely or not at all."""

SECONDS = 60.0
"""Maximum seconds to read debug information."""

_MARGIN = 1.0
"""Seconds after that at which the reader is killed if it has not stopped."""

ROUNDING = 16
"""glibc rounds requests up to usable sizes that are this many bytes apart."""

_C_LIBRARY = re.compile(
    r"(ld|lib(anl|c|dl|m|mvec|nss_\w+|pthread|resolv|rt|thread_db|util))(-2\.|-linux|\.so)"
)
"""First parts of the names of glibc's own modules."""

_INTERNAL = re.compile(r"^[^<]*\b_[_A-Z]")
"""Pattern of a library's internal names: bases and parts of public classes."""

_NO_POINTERS = (INT, TEXT, DATA)

SMALLEST = 24
"""Usable bytes of glibc's smallest blocks."""


class Suggestions(NamedTuple):
    """Type candidates of groups.

    Attributes:
        structs: index of a group -> names of structs, most likely first.
        warnings: debug information that was not read.
    """

    structs: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    warnings: tuple[model.Warning, ...] = ()


def suggest(
    recording: model.Recording,
    folded: Folding,
    limit: int,
    *,
    root: Sysroot,
    thorough: bool,
) -> Suggestions:
    """Return type candidates of the first groups of a scan, from debug information.

    Args:
        recording: the scan.
        folded: its groups, in the order of the report.
        limit: how many of them the report lists.
        root: where to find its files.
        thorough: read all debug information, however large.
    """
    sizes = folded.size.tolist()
    untyped = np.flatnonzero((folded.type < 0) & (folded.shape == 0))
    wanted = untyped[untyped < limit].tolist()
    if not wanted or recording.word != dwarf.WORD_BYTES:
        return Suggestions()
    files = ModuleFiles(recording, folded.joined.space, root=root)
    most = sys.maxsize if thorough else DEFAULT_CANDIDATE_BYTES
    files.provide([recording.target.exe])
    found, complete = _read(files, recording.target.exe, {sizes[i] for i in wanted}, most)
    names = {i: _fitting(folded, i, sizes[i], found) for i in wanted}
    fitting = {i: structs for i, structs in names.items() if structs}
    warnings: tuple[model.Warning, ...] = ()
    if not complete:
        message = (
            f"debug information of {recording.target.exe} could not be read to its end: what "
            "blocks perhaps are may be missing"
        )
        warnings = (model.Warning("debug-information-left-out", message),)
    return Suggestions(fitting, warnings)


def fits(struct_size: int, usable: int) -> bool:
    """Return whether a struct, allocated alone, gets a block of this many usable bytes."""
    least = 0 if usable <= SMALLEST else usable - ROUNDING
    return least < struct_size <= usable


def _read(
    files: ModuleFiles, own: str, sizes: Iterable[int], most: int
) -> tuple[set[Struct], bool]:
    """Return the structs of some sizes, and whether nothing of the program's own is missing.

    No more than `most` bytes are read.
    """
    wanted = {size for usable in sizes for size in range(usable + 1) if fits(size, usable)}
    deadline = time.monotonic() + SECONDS

    def structs(path: str) -> list[Struct]:
        with _opened(files, path) as elfs:
            return sorted(
                struct
                for elf in elfs
                for struct in dwarf.structs(elf, wanted.__contains__, deadline)
            )

    found: set[Struct] = set()
    complete = True
    paths = list(_within(_debug_information(files, own), most))
    for path, answer in confined.each(paths, structs, SECONDS + _MARGIN):
        if isinstance(answer, confined.Failed):
            complete &= path != own
            continue
        found.update(Struct(name, size, tuple(words)) for name, size, words in answer)
    return found, complete


def _within(sizes: Iterable[tuple[int, str]], most: int) -> Iterator[str]:
    """Yield the modules whose debug information is read, if that is all that may be."""
    for size, path in sizes:
        if size <= most:
            most -= size
            yield path


def _debug_information(files: ModuleFiles, own: str) -> Iterator[tuple[int, str]]:
    """Yield the modules that have any, and how many bytes; the program itself first."""

    def size_of(path: str) -> int:
        with _opened(files, path) as elfs:
            return sum(map(dwarf.size_of_debug_information, elfs))

    # The structs of the C library are its own: what programs lose is rarely one of them, but most
    # often the program's own.
    paths = [p for p in files.space.modules if not _C_LIBRARY.match(PurePosixPath(p).name)]
    paths.sort(key=lambda path: path != own)
    for path, size in confined.each(paths, size_of, SECONDS):
        # If a file cannot be read, a warning says so already if its symbols were wanted.
        if isinstance(size, int) and size:
            yield size, path


@contextmanager
def _opened(files: ModuleFiles, path: str) -> Iterator[list[ELFFile]]:
    """Open those files of a module that hold debug information."""
    with files.opened_with_debug_file(path) as both:
        yield [elf for elf in both if elf and dwarf.size_of_debug_information(elf)]


def _fitting(folded: Folding, group: int, usable: int, found: Iterable[Struct]) -> tuple[str, ...]:
    codes = folded.signature[group].tolist()
    mixed = len(folded.joined.labels) - 1
    ranks: dict[str, tuple[bool, int, bool, int]] = {}
    for struct in found:
        score = _score(struct, codes, mixed) if fits(struct.size, usable) else None
        # The size alone says too little.
        if score:
            name = type_names.shortened(type_names.simplified(struct.name))
            rank = (bool(_INTERNAL.search(name)), -score, name.startswith("std::"), -struct.size)
            ranks[name] = min(rank, ranks.get(name, rank))
    likely = [name for name, rank in ranks.items() if not rank[0]] or list(ranks)
    return tuple(sorted(likely, key=lambda name: (ranks[name], name))[:SHOWN])


def _score(struct: Struct, codes: Sequence[int], mixed: int) -> int | None:
    """Return in how many words a struct has pointers where blocks do; None if it is impossible."""
    score = 0
    for member, code in zip(struct.words, codes):
        is_pointer = code == HEAP or FIRST_PLACE <= code < mixed
        if is_pointer and member in (dwarf.OTHER, dwarf.NOTHING):
            return None
        if code in _NO_POINTERS and member in (dwarf.POINTER, dwarf.FUNCTION):
            return None
        if code == HEAP and member == dwarf.FUNCTION:
            return None
        score += is_pointer and member == dwarf.POINTER
        score += 2 * (is_pointer and member == dwarf.FUNCTION)
    return score
