"""Structs that blocks without a type could be, by their size and by where pointers are in them."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath

from elftools.elf.elffile import ELFFile

from reachscan import debug_files, dwarf_types, model, symbols
from reachscan.address_space import AddressSpace
from reachscan.dwarf_types import OutOfTimeError, Struct
from reachscan.elf_files import UnusableFileError
from reachscan.scanning import ScanResult
from reachscan.signatures import DATA, FIRST_PLACE, HEAP, INT, TEXT

SHOWN = 4
"""Candidates that are kept of each group, the likeliest."""

MOST = 1 << 20
"""Bytes of debug information that are read, in all: about as many as can be in two seconds. Of the
program it is the first ones; a library is read as a whole, if it fits, or not."""

SECONDS = 4.0
"""How long it is read at most, on a machine that is very busy."""

ROUNDING = 16
"""glibc rounds requests up to usable sizes that lie so many bytes apart."""

_C_LIBRARY = re.compile(
    r"(ld|lib(anl|c|dl|m|mvec|nss_\w+|pthread|resolv|rt|thread_db|util))(-2\.|-linux|\.so)"
)
"""How the names of glibc's own modules begin."""

_NO_POINTERS = (INT, TEXT, DATA)

SMALLEST = 24
"""Usable bytes of its smallest blocks."""


def suggest(result: ScanResult, limit: int, *, live: bool) -> ScanResult:
    """Return a scan with what its first groups could be, where debug information tells.

    Args:
        result: the scan, its groups in the order in which they will be reported.
        limit: how many groups will be.
        live: the process still exists, so that files are looked up as it sees them.
    """
    folded = result.folding
    number = min(limit, len(folded.example))
    untyped = [i for i in range(number) if folded.type[i] < 0 and not folded.shape[i]]
    sizes = {int(folded.size[i]) for i in untyped}
    if not sizes:
        return result
    recording = result.recording
    found, complete = _read(recording, sizes, live)
    names = {i: _fitting(result, i, found) for i in untyped}
    if not complete:
        message = (
            f"{recording.target.exe} has more debug information than is read for candidates "
            f"({MOST >> 20} MiB): what blocks perhaps are may be missing or wrong"
        )
        warning = model.Warning("debug-information-left-out", message)
        recording = recording._replace(warnings=(*recording.warnings, warning))
    fitting = {i: structs for i, structs in names.items() if structs}
    return result._replace(candidates=fitting, recording=recording)


def fits(struct_size: int, usable: int) -> bool:
    """Tell whether a struct, allocated alone, gets a block of so many usable bytes."""
    least = 0 if usable <= SMALLEST else usable - ROUNDING
    return least < struct_size <= usable


def _read(recording: model.Recording, sizes: Iterable[int], live: bool) -> tuple[set[Struct], bool]:
    """Return the structs of some sizes, and whether all of the program's own are among them."""
    deadline = time.monotonic() + SECONDS
    wanted = {size for usable in sizes for size in range(usable + 1) if fits(size, usable)}
    own = recording.target.exe
    found: set[Struct] = set()
    complete = True
    left = MOST
    # What is lost is most often the program's own.
    modules = sorted(_debug_information(recording, live), key=lambda m: (m[1] != own, m))
    for size, path in modules:
        if size > left:
            complete &= path != own
        if size > left and path != own:
            continue
        with contextlib.suppress(UnusableFileError), _opened(recording, path, live) as files:
            try:
                for file in files:
                    found.update(dwarf_types.structs(file, wanted.__contains__, left, deadline))
            except OutOfTimeError:
                complete &= path != own
                break
        left = max(0, left - size)
    return found, complete


def _debug_information(recording: model.Recording, live: bool) -> Iterator[tuple[int, str]]:
    """Yield the modules that have any, and how many bytes."""
    for path in AddressSpace(recording.mappings, recording.modules).modules:
        # The structs of the C library are its own: what programs lose is rarely one of them.
        if _C_LIBRARY.match(PurePosixPath(path).name):
            continue
        try:
            with _opened(recording, path, live) as files:
                size = sum(map(dwarf_types.size_of_debug_information, files))
        except UnusableFileError:
            continue  # a warning says so already if its symbols were wanted
        if size:
            yield size, path


@contextmanager
def _opened(recording: model.Recording, path: str, live: bool) -> Iterator[list[ELFFile]]:
    """Open those files of a module that hold debug information."""
    where = symbols.roots(recording, live=live)
    with (
        symbols.opened_module(recording, path, live=live) as elf,
        debug_files.opened(elf, path, where) as debug,
    ):
        files = [elf, debug] if debug else [elf]
        yield [file for file in files if dwarf_types.size_of_debug_information(file)]


def _fitting(result: ScanResult, group: int, found: Iterable[Struct]) -> tuple[str, ...]:
    folded = result.folding
    codes = folded.signature[group].tolist()
    mixed = len(folded.labels) - 1
    usable = int(folded.size[group])
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
        if is_pointer and member in (dwarf_types.OTHER, dwarf_types.NOTHING):
            return None
        if code in _NO_POINTERS and member in (dwarf_types.POINTER, dwarf_types.FUNCTION):
            return None
        if code == HEAP and member == dwarf_types.FUNCTION:
            return None
        score += is_pointer and member == dwarf_types.POINTER
        score += 2 * (is_pointer and member == dwarf_types.FUNCTION)
    return score
