"""Names addresses: module, symbol and offset, from the symbol tables of the mapped files.

Files are looked up where the process sees them, and are trusted only if their build id is the one
that the process has mapped. They may come from a container: nothing in them is trusted either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection
from elftools.elf.segments import NoteSegment
from numpy.typing import NDArray

from reachscan import demangling, model
from reachscan.address_space import AddressSpace, plain_path

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

_OBJECT, _FUNCTION, _INDIRECT = 1, 2, 10
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
    build_ids = {plain_path(m.path): m.build_id for m in recording.modules}
    for number, path in enumerate(space.modules):
        inside = space.module_of[at] == number
        if not inside.any() or not path.startswith("/"):
            continue
        mappings = [recording.mappings[i] for i in np.unique(at[inside])]
        pid = recording.target.pid if live else None
        try:
            table = _find_table(_candidates(path, mappings, pid), build_ids.get(path, b""), live)
        except _NoSymbolsError as error:
            warnings.append(model.Warning("no-symbols", f"no symbols for {path}: {error}"))
            continue
        for i in np.unique(at[inside]):
            here = addresses[at == i]
            offsets = here - np.uint64(recording.mappings[i].start - recording.mappings[i].offset)
            names.update(table.names(path, here, offsets))
    return Named(names, tuple(warnings))


class _NoSymbolsError(Exception):
    """A module whose symbols cannot be used; the text says why."""


def _candidates(path: str, mappings: list[model.Mapping], pid: int | None) -> Iterator[Path]:
    """Yield where the file behind a module may be found, best first."""
    if pid is None:
        yield Path(path)
        return
    yield Path(f"/proc/{pid}/root{path}")
    for m in mappings:  # still there when the file itself is deleted or replaced
        yield Path(f"/proc/{pid}/map_files/{m.start:x}-{m.end:x}")


def _find_table(candidates: Iterator[Path], build_id: bytes, live: bool) -> _SymbolTable:
    reasons: list[str] = []
    for path in candidates:
        try:
            with _open_regular(path) as file:
                elf = ELFFile(file)
                found = _build_id(elf)
                if build_id and found != build_id:
                    reasons.append("the file on disk is not the one that was mapped")
                elif not build_id and not live:
                    reasons.append("it has no build id to recognise its file by")
                else:
                    return _SymbolTable(elf)
        except OSError as error:
            reasons.append(error.strerror or "it cannot be read")
        except (ELFError, ValueError, KeyError, TypeError, UnicodeError, OverflowError) as error:
            # The parsers raise what they trip over in a damaged file.
            reasons.append(f"its file is damaged ({type(error).__name__})")
    raise _NoSymbolsError(reasons[0] if reasons else "it has no file")


def _open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; never hang on, or disturb, a device or a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError(0, "it is no regular file")
    return file


def _build_id(elf: ELFFile) -> bytes:
    for part in (*elf.iter_segments("PT_NOTE"), *elf.iter_sections("SHT_NOTE")):
        if isinstance(part, NoteSegment | NoteSection):
            for note in part.iter_notes():
                if note["n_type"] == "NT_GNU_BUILD_ID":
                    return bytes.fromhex(note["n_desc"])
    return b""


class _SymbolTable:
    """Functions and objects of one ELF file, sorted by address."""

    def __init__(self, elf: ELFFile) -> None:
        self._loads = [
            (int(s["p_offset"]), int(s["p_filesz"]), int(s["p_vaddr"]))
            for s in elf.iter_segments("PT_LOAD")
        ]
        section = _best_symbol_section(elf)
        if section is None:
            self._symbols, self._strings = np.empty(0, _SYMBOL), b""
        else:
            raw = section.data()
            rows = np.frombuffer(raw, _SYMBOL, len(raw) // _SYMBOL.itemsize)
            self._symbols = _usable(rows)
            self._strings = section.stringtable.data()
        self._starts = np.ascontiguousarray(self._symbols["value"])
        self._ends = self._starts + self._symbols["size"]

    def names(
        self, path: str, addresses: model.Addresses, offsets: model.Addresses
    ) -> Iterator[tuple[int, model.Name]]:
        """Yield (address, name) for those file offsets that lie inside a symbol."""
        values = np.zeros(len(offsets), np.uint64)
        for start, size, base in self._loads:
            inside = (offsets >= start) & (offsets < start + size)
            values[inside] = offsets[inside] - np.uint64(start) + np.uint64(base)
        index = np.searchsorted(self._starts, values, side="right") - 1
        for address, value, i in zip(addresses, values, index, strict=True):
            if value and i >= 0 and value < self._ends[i]:
                symbol = demangling.symbol_name(self._text(int(self._symbols["name"][i])))
                if symbol:
                    offset = int(value - self._starts[i])
                    yield int(address), model.Name(path, symbol, offset)

    def _text(self, at: int) -> str:
        end = self._strings.find(b"\0", at)
        return self._strings[at : end if end >= 0 else None].decode("utf-8", "backslashreplace")


def _best_symbol_section(elf: ELFFile) -> SymbolTableSection | None:
    found = {
        section["sh_type"]: section
        for section in elf.iter_sections()
        if isinstance(section, SymbolTableSection)
    }
    return found.get("SHT_SYMTAB") or found.get("SHT_DYNSYM")


def _usable(rows: Rows) -> Rows:
    """Return defined functions and objects by address, the preferred one of aliases only."""
    kind, binding = rows["info"] & 15, rows["info"] >> 4
    wanted = np.isin(kind, (_OBJECT, _FUNCTION, _INDIRECT)) & (rows["section"] != 0)
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
