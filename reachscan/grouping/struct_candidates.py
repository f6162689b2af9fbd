"""Structs that blocks without a type could be, by their size and by where pointers are in them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile

from reachscan.grouping.groups import Folding
from reachscan.grouping.signatures import DATA, FIRST_PLACE, HEAP, INT, TEXT
from reachscan.naming import confined, dwarf
from reachscan.naming.dwarf import OutOfTimeError, Struct
from reachscan.naming.module_files import ModuleFiles
from reachscan.recording import model

SHOWN = 4
"""Candidates that are kept of each group, the likeliest."""

MOST = 1 << 20
"""Bytes of debug information that are read, in all: about as many as can be in two seconds. Of the
program it is the first ones; a library is read as a whole, if it fits, or not."""

SECONDS = 4.0
"""How long it is looked for, and then read, at most, on a machine that is very busy."""

_MARGIN = 1.0
"""What cannot be read in parts is given up so many seconds later."""

ROUNDING = 16
"""glibc rounds requests up to usable sizes that lie so many bytes apart."""

_C_LIBRARY = re.compile(
    r"(ld|lib(anl|c|dl|m|mvec|nss_\w+|pthread|resolv|rt|thread_db|util))(-2\.|-linux|\.so)"
)
"""How the names of glibc's own modules begin."""

_NO_POINTERS = (INT, TEXT, DATA)

SMALLEST = 24
"""Usable bytes of its smallest blocks."""


class Suggestions(NamedTuple):
    """What groups could be.

    Attributes:
        structs: index of a group -> names of structs, the likeliest first.
        warnings: what of the debug information was not looked at.
    """

    structs: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    warnings: tuple[model.Warning, ...] = ()


def suggest(
    recording: model.Recording,
    folded: Folding,
    limit: int,
    *,
    root: str | Path | None,
) -> Suggestions:
    """Return what the first groups of a scan could be, where debug information tells.

    Args:
        recording: the scan.
        folded: its groups, in the order in which they will be reported.
        limit: how many groups will be.
        root: folder below which its files lie; None if the process still exists, and files are
            looked up as it sees them.
    """
    sizes = folded.size.tolist()
    untyped = np.flatnonzero((folded.type < 0) & (folded.shape == 0))
    wanted = untyped[untyped < limit].tolist()
    if not wanted:
        return Suggestions()
    files = ModuleFiles(recording, folded.joined.space, root=root)
    found, complete = _read(files, recording.target.exe, {sizes[i] for i in wanted})
    names = {i: _fitting(folded, i, sizes[i], found) for i in wanted}
    fitting = {i: structs for i, structs in names.items() if structs}
    warnings: tuple[model.Warning, ...] = ()
    if not complete:
        message = (
            f"{recording.target.exe} has more debug information than is read for candidates "
            f"({MOST >> 20} MiB): what blocks perhaps are may be missing or wrong"
        )
        warnings = (model.Warning("debug-information-left-out", message),)
    return Suggestions(fitting, warnings)


def fits(struct_size: int, usable: int) -> bool:
    """Tell whether a struct, allocated alone, gets a block of so many usable bytes."""
    least = 0 if usable <= SMALLEST else usable - ROUNDING
    return least < struct_size <= usable


def _read(files: ModuleFiles, own: str, sizes: Iterable[int]) -> tuple[set[Struct], bool]:
    """Return the structs of some sizes, and whether all of the program's own are among them."""
    wanted = {size for usable in sizes for size in range(usable + 1) if fits(size, usable)}
    budget = _budget(_debug_information(files, own), own)
    deadline = time.monotonic() + SECONDS

    def structs(path: str) -> tuple[list[Struct], bool]:
        most = budget[path]
        found: set[Struct] = set()
        complete = True
        with _opened(files, path) as elfs:
            for elf in elfs:
                complete &= dwarf.size_of_debug_information(elf) <= most
                try:
                    found.update(dwarf.structs(elf, wanted.__contains__, most, deadline))
                except OutOfTimeError:
                    complete = False
        return sorted(found), complete

    found: set[Struct] = set()
    complete = True
    for path, answer in confined.each(list(budget), structs, SECONDS + _MARGIN):
        if isinstance(answer, confined.Failed):
            complete &= path != own
            continue
        found.update(Struct(name, size, tuple(words)) for name, size, words in answer[0])
        complete &= path != own or answer[1]
    return found, complete


def _budget(sizes: Iterable[tuple[int, str]], own: str) -> dict[str, int]:
    """Return how many bytes of debug information are read of which modules, by path."""
    budget: dict[str, int] = {}
    left = MOST
    # What is lost is most often the program's own.
    for size, path in sorted(sizes, key=lambda m: (m[1] != own, m)):
        if size <= left or path == own:
            budget[path] = left
            left = max(0, left - size)
    return budget


def _debug_information(files: ModuleFiles, own: str) -> Iterator[tuple[int, str]]:
    """Yield the modules that have any, and how many bytes; the program itself first."""

    def size_of(path: str) -> int:
        with _opened(files, path) as elfs:
            return sum(map(dwarf.size_of_debug_information, elfs))

    # The structs of the C library are its own: what programs lose is rarely one of them.
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
    scores: dict[str, tuple[int, int]] = {}
    for struct in found:
        score = _score(struct, codes, mixed) if fits(struct.size, usable) else None
        # The size alone says too little.
        if score:
            scores[struct.name] = max((score, struct.size), scores.get(struct.name, (0, 0)))
    ranked = sorted(scores, key=lambda name: (-scores[name][0], -scores[name][1], name))
    return tuple(ranked[:SHOWN])


def _score(struct: Struct, codes: Sequence[int], mixed: int) -> int | None:
    """Return in how many words a struct has pointers where blocks do; None if it is impossible."""
    score = 0
    for member, code in zip(struct.words, codes, strict=False):
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
