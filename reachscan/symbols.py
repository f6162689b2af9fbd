"""Names addresses: module, symbol and offset, from the symbol tables of the mapped files.

Files are looked up where the process sees them, and are trusted only if their build id is the one
that the process has mapped. They may come from a container: nothing in them is trusted either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from numpy.typing import NDArray

from reachscan import debug_files, demangling, elf_files, model
from reachscan.address_space import AddressSpace, plain_path
from reachscan.elf_files import Load, UnusableFileError

_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)
Rows = NDArray[np.void]

_OBJECT, _FUNCTION, _THREAD_LOCAL, _INDIRECT = 1, 2, 6, 10
ADDRESSES, THREAD_LOCALS = (_OBJECT, _FUNCTION, _INDIRECT), (_THREAD_LOCAL,)
"""Types of the symbols whose values are addresses, or offsets into thread-local storage."""

NOWHERE = np.uint64(2**64 - 1)
"""The value of what no symbol can have."""
_PREFERENCE = np.array([2, 0, 1, *[3] * 13])  # by binding: global names before weak and local ones


@dataclass(frozen=True)
class Named:
    """Outcome of naming addresses: the names found, and what to tell about those that were not."""

    names: dict[int, model.Name]
    warnings: tuple[model.Warning, ...]


def name_addresses(recording: model.Recording, addresses: model.Addresses, *, live: bool) -> Named:
    """Name addresses inside modules of a recording.

    Args:
        recording: the decoded stream; says what was mapped where.
        addresses: ascending.
        live: the process still exists, so that files are looked up as it sees them.
    """
    space = AddressSpace(recording.mappings, recording.modules)
    at = space.mapping_at(addresses)
    names: dict[int, model.Name] = {}
    warnings: list[model.Warning] = []
    for number, path in enumerate(space.modules):
        inside = space.module_of[at] == number
        if not inside.any() or not path.startswith("/"):
            continue
        try:
            with opened_module(recording, path, live=live) as elf:
                loads = elf_files.loads(elf)
                found = tables(elf, path, roots(recording, live=live))
        except UnusableFileError as error:
            warnings.append(model.Warning("no-symbols", f"no symbols for {path}: {error}"))
            continue
        for i in np.unique(at[inside]):
            here = addresses[at == i]
            values = _values(here, space.file_offset(int(i)), loads)
            for table in found:
                names.update(table.names(path, here, values))
    return Named(names, tuple(warnings))


@contextmanager
def opened_module(recording: model.Recording, path: str, *, live: bool) -> Iterator[ELFFile]:
    """Open the file of a module, if it is the one that the process has mapped.

    Args:
        recording: says what was mapped where.
        path: of the module, as the process sees it.
        live: the process still exists.

    Raises:
        UnusableFileError: there is no such file, it is another one, or damaged.
    """
    with elf_files.opened(_trusted_file(recording, path, live)) as elf:
        yield elf


def _trusted_file(recording: model.Recording, path: str, live: bool) -> Path:
    build_id = next((m.build_id for m in recording.modules if plain_path(m.path) == path), b"")
    reasons: list[str] = []
    for candidate in _candidates(recording, path, live):
        try:
            with elf_files.opened(candidate) as elf:
                found = elf_files.build_id(elf)
        except UnusableFileError as error:
            reasons.append(str(error))
            continue
        if build_id and found != build_id:
            reasons.append("the file on disk is not the one that was mapped")
        elif not build_id and not live:
            reasons.append("it has no build id to recognise its file by")
        else:
            return candidate
    raise UnusableFileError(reasons[0] if reasons else "it has no file")


def roots(recording: model.Recording, *, live: bool) -> Sequence[Path]:
    """Return the root folders below which files of the target may lie, best first."""
    here = Path("/")
    return (Path(f"/proc/{recording.target.pid}/root"), here) if live else (here,)


def _candidates(recording: model.Recording, path: str, live: bool) -> Iterator[Path]:
    """Yield where the file behind a module may be found, best first."""
    if not live:
        yield Path(path)
        return
    pid = recording.target.pid
    yield Path(f"/proc/{pid}/root{path}")
    for m in recording.mappings:  # still there when the file itself is deleted or replaced
        if plain_path(m.path) == path:
            yield Path(f"/proc/{pid}/map_files/{m.start:x}-{m.end:x}")


def _values(addresses: model.Addresses, file_offset: int, loads: Sequence[Load]) -> model.Addresses:
    """Return what addresses of one mapping are in the file's own numbering, or `NOWHERE`.

    Args:
        addresses: of the target.
        file_offset: what to add to an address to get its place in the file.
        loads: the segments of the file.
    """
    offsets = addresses + np.uint64(file_offset % (1 << 64))
    values = np.full(len(offsets), NOWHERE)
    # What lies behind the end of a segment in the file may be the next segment, or its own .bss.
    for behind in (True, False):
        for load in loads:
            size = load.memory_size if behind else load.file_size
            inside = (offsets >= load.offset) & (offsets < load.offset + size)
            values[inside] = offsets[inside] - np.uint64(load.offset) + np.uint64(load.address)
    return values


def tables(
    elf: ELFFile, path: str, where: Sequence[Path], kinds: Sequence[int] = ADDRESSES
) -> list[SymbolTable]:
    """Return the symbol tables of a module, the best last.

    Args:
        elf: the module's own file.
        path: of the module, as the process sees it.
        where: root folders to look for its debug file in, best first.
        kinds: types of the symbols that are wanted.

    Raises:
        UnusableFileError: the file is damaged.
    """
    own = [s for s in elf.iter_sections() if isinstance(s, SymbolTableSection)]
    found = [SymbolTable(s, kinds) for s in own if s["sh_type"] == "SHT_DYNSYM"]
    complete = [s for s in own if s["sh_type"] == "SHT_SYMTAB"]
    if complete:
        return [*found, SymbolTable(complete[0], kinds)]
    try:
        with debug_files.opened(elf, path, where) as debug:
            section = debug.get_section_by_name(".symtab") if debug else None
            return found + (
                [SymbolTable(section, kinds)] if isinstance(section, SymbolTableSection) else []
            )
    except UnusableFileError:
        return found  # the names that programs are linked by are better than none


class SymbolTable:
    """Symbols of one ELF file, sorted by value."""

    def __init__(self, section: SymbolTableSection, kinds: Sequence[int]) -> None:
        raw = section.data()
        rows = np.frombuffer(raw, _SYMBOL, len(raw) // _SYMBOL.itemsize)
        self._symbols = _usable(rows, kinds)
        self._strings = section.stringtable.data()
        self._starts = np.ascontiguousarray(self._symbols["value"])
        self._ends = self._starts + self._symbols["size"]

    def names(
        self, path: str, addresses: model.Addresses, values: model.Addresses
    ) -> Iterator[tuple[int, model.Name]]:
        """Yield the names of addresses whose values lie inside a symbol.

        Args:
            path: of the module.
            addresses: what to call them by.
            values: where they are in the numbering of the symbols, one per address.
        """
        index = np.searchsorted(self._starts, values, side="right") - 1
        for address, value, i in zip(addresses, values, index, strict=True):
            if i >= 0 and value < self._ends[i]:
                symbol = demangling.symbol_name(self._text(int(self._symbols["name"][i])))
                if symbol:
                    offset = int(value - self._starts[i])
                    yield int(address), model.Name(path, symbol, offset)

    def _text(self, at: int) -> str:
        end = self._strings.find(b"\0", at)
        text = self._strings[at : end if end >= 0 else None].decode("utf-8", "backslashreplace")
        return text.partition("@")[0]  # behind it is the version of the library that has it


def _usable(rows: Rows, kinds: Sequence[int]) -> Rows:
    """Return defined symbols of some types by value, the preferred one of aliases only."""
    kind, binding = rows["info"] & 15, rows["info"] >> 4
    wanted = np.isin(kind, kinds) & (rows["section"] != 0)
    rows, binding = rows[wanted], binding[wanted]
    order = np.lexsort((rows["name"], _PREFERENCE[binding], rows["value"]))
    rows = rows[order]
    first = np.ones(len(rows), bool)
    first[1:] = rows["value"][1:] != rows["value"][:-1]
    rows = rows[first].copy()
    # Hand-written assembly gives no size: such a symbol reaches up to the next one.
    following = np.append(rows["value"][1:], rows["value"][-1:])
    unsized = rows["size"] == 0
    rows["size"][unsized] = (following - rows["value"])[unsized]
    return rows
