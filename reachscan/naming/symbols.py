"""Names addresses: module, symbol and offset, from the symbol tables of the mapped files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from numpy.typing import NDArray

from reachscan.naming import confined, debug_files, demangle, elf_files
from reachscan.naming.elf_files import Load
from reachscan.naming.module_files import ModuleFiles
from reachscan.naming.untrusted_files import Root, UnusableFileError
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

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
"""A value that no symbol has."""
MAX_WARNINGS = 10
"""Number of modules without symbols that a warning lists."""

LONGEST = 4096
"""Longer names are left out: they are unreadable, and would make up signatures."""

_PREFERENCE = np.array([2, 0, 1, *[3] * 13])  # by binding: global names before weak and local ones


@dataclass(frozen=True)
class Named:
    """Result of naming addresses: the names found, and warnings about the others."""

    names: dict[int, model.Name]
    warnings: tuple[model.Warning, ...]


def name_addresses(files: ModuleFiles, addresses: model.Addresses) -> Named:
    """Name addresses inside modules.

    Args:
        files: the files of the modules, and the memory map.
        addresses: the addresses, ascending.
    """
    at = files.space.mapping_at(addresses)
    inside = _by_module(files, at)

    def read(path: str) -> list[tuple[int, str, int]]:
        return list(_names(files, path, addresses[inside[path]], at[inside[path]]))

    files.provide(inside)
    names: dict[int, model.Name] = {}
    warnings: list[model.Warning] = []
    for path, found in confined.each(list(inside), read):
        if isinstance(found, confined.Failed):
            warnings.append(_warning(path, found))
            continue
        names.update({a: model.Name(path, symbol, offset) for a, symbol, offset in found})
    return Named(names, _bounded(warnings))


def _by_module(files: ModuleFiles, at: model.Indexes) -> dict[str, model.Indexes]:
    """Return the addresses in each module that may have a file, by its path.

    Args:
        files: of the modules.
        at: the mapping of each address, -1 if it has none.
    """
    module = files.space.module_of[at]
    order = np.argsort(module, kind="stable")
    numbers, starts = np.unique(module[order], return_index=True)
    parts = np.split(order, starts[1:])
    paths = [files.space.modules[number] if number >= 0 else "" for number in numbers]
    return {p: part for p, part in zip_equal(paths, parts) if p.startswith("/")}


def _names(
    files: ModuleFiles, path: str, addresses: model.Addresses, at: model.Indexes
) -> Iterator[tuple[int, str, int]]:
    """Yield addresses in one module, their symbols, and the offsets from these; best last."""
    with files.opened(path) as elf:
        loads = elf_files.loads(elf)
        found = tables(elf, path, files.roots)
    for mapping in np.unique(at):
        here = addresses[at == mapping]
        values = values_of(here, files.space.file_offset(int(mapping)), loads)
        for table in found:
            yield from table.names(here, values)


def _warning(path: str, failed: confined.Failed) -> model.Warning:
    more = f" and {failed.untried} more modules" if failed.untried else ""
    return model.Warning("no-symbols", f"no symbols for {path}{more}: {failed.reason}")


def _bounded(warnings: Sequence[model.Warning]) -> tuple[model.Warning, ...]:
    if len(warnings) <= MAX_WARNINGS:
        return tuple(warnings)
    more = f"no symbols for {len(warnings) - MAX_WARNINGS} more modules"
    return (*warnings[:MAX_WARNINGS], model.Warning("no-symbols", more))


def values_of(
    addresses: model.Addresses, file_offset: int, loads: Sequence[Load]
) -> model.Addresses:
    """Return the addresses of one mapping as the file numbers them, or `NOWHERE`.

    Args:
        addresses: addresses in the target.
        file_offset: what to add to an address to get its offset in the file.
        loads: the loaded segments of the file.
    """
    offsets = addresses + np.uint64(file_offset % (1 << 64))
    values = np.full(len(offsets), NOWHERE)
    # Beyond the end of a segment in the file is the next segment, or its own .bss.
    for behind in (True, False):
        for load in loads:
            size = load.memory_size if behind else load.file_size
            inside = (offsets >= load.offset) & (offsets < load.offset + size)
            values[inside] = offsets[inside] - np.uint64(load.offset) + np.uint64(load.address)
    return values


def tables(
    elf: ELFFile, path: str, where: Sequence[Root], kinds: Sequence[int] = ADDRESSES
) -> list[SymbolTable]:
    """Return the symbol tables of a module, best last.

    Args:
        elf: the module's own file.
        path: of the module, as the process sees it.
        where: root folders to search for its debug file, best first.
        kinds: wanted types of symbols.

    Raises:
        UnusableFileError: the file is damaged.
    """
    found = _tables(elf, ".dynsym", kinds)
    complete = _tables(elf, ".symtab", kinds)
    if complete:
        return found + complete
    try:
        with debug_files.opened(elf, path, where) as debug:
            return found + (_tables(debug, ".symtab", kinds) if debug else [])
    except UnusableFileError:
        return found  # the dynamic symbols are better than none


def _tables(elf: ELFFile, section: str, kinds: Sequence[int]) -> list[SymbolTable]:
    found = elf.get_section_by_name(section)
    return [SymbolTable(found, kinds)] if isinstance(found, SymbolTableSection) else []


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
        self, addresses: model.Addresses, values: model.Addresses
    ) -> Iterator[tuple[int, str, int]]:
        """Yield addresses inside a symbol, the symbol's name, and their offsets from it.

        Args:
            addresses: the addresses to yield.
            values: each address as the symbol table numbers it.
        """
        index = np.searchsorted(self._starts, values, side="right") - 1
        for address, value, i in zip_equal(addresses, values, index):
            if i >= 0 and value < self._ends[i]:
                symbol = demangle.symbol_name(self._text(int(self._symbols["name"][i])))
                if symbol:
                    yield int(address), symbol, int(value - self._starts[i])

    def _text(self, at: int) -> str:
        """Return the string at an offset; empty if it is unterminated or too long."""
        end = self._strings.find(b"\0", at, at + LONGEST)
        text = self._strings[at : max(at, end)].decode("utf-8", "backslashreplace")
        return text.partition("@")[0]  # the library's version follows


def _usable(rows: Rows, kinds: Sequence[int]) -> Rows:
    """Return defined symbols of some types by value, and only the preferred one of aliases."""
    kind, binding = rows["info"] & 15, rows["info"] >> 4
    wanted = np.isin(kind, kinds) & (rows["section"] != 0)
    rows, binding = rows[wanted], binding[wanted]
    order = np.lexsort((rows["name"], _PREFERENCE[binding], rows["value"]))
    rows = rows[order]
    first = np.ones(len(rows), bool)
    first[1:] = rows["value"][1:] != rows["value"][:-1]
    rows = rows[first].copy()
    # Symbols of hand-written assembly have no size: they extend to the next symbol.
    following = np.append(rows["value"][1:], rows["value"][-1:])
    unsized = rows["size"] == 0
    rows["size"][unsized] = (following - rows["value"])[unsized]
    return rows
