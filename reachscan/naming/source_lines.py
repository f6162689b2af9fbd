"""Reads from DWARF the source lines of code, and the functions that were inlined there.

Only the units that contain the code are read, and reading stops after a while: lines are helpful,
but nothing depends on them.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile

from reachscan.naming import demangle
from reachscan.naming.elf_files import DAMAGE

_DEEPEST = 64
"""Maximum nesting of inlined functions, and length of a chain of references to a name."""

_LONGEST = 4096
"""Longer names and paths are left out: they are unreadable."""

_SCOPES = (
    *("DW_TAG_compile_unit", "DW_TAG_namespace", "DW_TAG_structure_type", "DW_TAG_class_type"),
    *("DW_TAG_union_type", "DW_TAG_module"),
)
"""Tags of DIEs that may contain functions."""


class Place(NamedTuple):
    """The function and line of some code; unknown attributes are None.

    `inlined`: it was inlined into the function of the next place, at that line.
    """

    function: str | None
    file: str | None
    line: int | None
    inlined: bool


class _Function(NamedTuple):
    """A range of code, and the DIE of its function."""

    start: int
    end: int
    die: Any


def places(
    elf: ELFFile, supplement: ELFFile | None, addresses: Sequence[int], deadline: float
) -> dict[int, list[Place]]:
    """Return the source places of code addresses: the innermost inlined function first.

    Args:
        elf: a file with debug information.
        supplement: the file that it shares parts of its debug information with, if any.
        addresses: the addresses as the file numbers them.
        deadline: when to stop reading, on the clock `time.monotonic`.
    """
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False, follow_links=False)
    if supplement is not None:
        dwarf.supplementary_dwarfinfo = supplement.get_dwarf_info(
            relocate_dwarf_sections=False, follow_links=False
        )
    found: dict[int, list[Place]] = {}
    for unit, inside in _units(dwarf, addresses, deadline):
        if time.monotonic() > deadline:
            break
        try:
            found |= _Unit(dwarf, unit, deadline).places(inside)
        except DAMAGE:
            continue
    return found


def _units(
    dwarf: Any, addresses: Sequence[int], deadline: float
) -> Iterator[tuple[Any, list[int]]]:
    """Yield the units that contain any of the addresses, with these addresses."""
    by_offset = defaultdict(list)
    table = dwarf.get_aranges()
    for address in addresses if table else ():
        offset = table.cu_offset_at_addr(address)
        if offset is not None:
            by_offset[offset].append(address)
    for offset, inside in by_offset.items():
        yield dwarf.get_CU_at(offset), inside
    # Some compilers write no such table, or omit units.
    rest = sorted({*addresses}.difference(*by_offset.values()))
    for unit in dwarf.iter_CUs() if rest else ():
        if not rest or time.monotonic() > deadline:
            return
        try:
            ranges = list(_ranges(dwarf, unit.get_top_DIE()))
        except DAMAGE:
            continue
        inside = [a for a in rest if any(start <= a < end for start, end in ranges)]
        if inside:
            rest = sorted({*rest}.difference(inside))
            yield unit, inside


class _Unit:
    """Looks addresses up in one compilation unit."""

    def __init__(self, dwarf: Any, unit: Any, deadline: float) -> None:
        self._dwarf = dwarf
        self._deadline = deadline
        self._top = unit.get_top_DIE()
        self._files = _Files(dwarf.line_program_for_CU(unit), _text(self._top, "DW_AT_comp_dir"))
        self._functions = sorted(self._functions_below(self._top, 0), key=lambda f: f[:2])
        self._starts = [function.start for function in self._functions]

    def places(self, addresses: Sequence[int]) -> dict[int, list[Place]]:
        return {address: list(self._places(address)) for address in addresses}

    def _places(self, address: int) -> Iterator[Place]:
        file, line = self._files.line_of(address)
        way = self._way_to(address)
        for die in reversed(way[1:]):
            yield Place(_name(die), file, line, inlined=True)
            file = self._files.name(_number(die, "DW_AT_call_file"))
            line = _number(die, "DW_AT_call_line")
        yield Place(_name(way[0]) if way else None, file, line, inlined=False)

    def _way_to(self, address: int) -> list[Any]:
        """Return the function that contains an address, and those inlined there, outermost first.

        Functions do not overlap, unless one is defined inside another.
        """
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address >= self._functions[at].end:
            return []
        way, blocks = [self._functions[at].die], [self._functions[at].die]
        while blocks and len(way) < _DEEPEST:
            blocks = [die for die in self._blocks(blocks[-1]) if self._holds(die, address)]
            way += [die for die in blocks[-1:] if die.tag == "DW_TAG_inlined_subroutine"]
        return way

    @staticmethod
    def _blocks(parent: Any) -> Iterator[Any]:
        for die in parent.iter_children():
            if die.tag in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block"):
                yield die

    def _holds(self, die: Any, address: int) -> bool:
        return any(start <= address < end for start, end in _ranges(self._dwarf, die))

    def _functions_below(self, parent: Any, depth: int) -> Iterator[_Function]:
        for die in parent.iter_children():
            if time.monotonic() > self._deadline or depth > _DEEPEST:
                return
            if die.tag == "DW_TAG_subprogram":
                for start, end in _ranges(self._dwarf, die):
                    yield _Function(start, end, die)
            elif die.tag in _SCOPES:
                yield from self._functions_below(die, depth + 1)


class _Files:
    """The line table of a unit, and its file names."""

    def __init__(self, program: Any, folder: str) -> None:
        self._program = program
        self._folder = folder
        rows = [e.state for e in program.get_entries() if e.state] if program else []
        self._rows = sorted(rows, key=lambda row: (row.address, not row.end_sequence))
        self._starts = [row.address for row in self._rows]

    def line_of(self, address: int) -> tuple[str | None, int | None]:
        at = bisect_right(self._starts, address) - 1
        if at < 0 or self._rows[at].end_sequence:
            return None, None
        row = self._rows[at]
        return self.name(row.file), row.line or None

    def name(self, index: int | None) -> str | None:
        """Return the path of a file; before DWARF 5, files count from 1; folder 0 is the unit's."""
        if self._program is None or index is None:
            return None
        header = self._program.header
        counts_from_0 = header.version >= 5
        at = index if counts_from_0 else index - 1
        if not 0 <= at < len(header.file_entry):
            return None
        entry = header.file_entry[at]
        folders = list(header.include_directory)
        folder = entry.dir_index if counts_from_0 else entry.dir_index - 1
        within = _decoded(folders[folder]) if 0 <= folder < len(folders) else ""
        # An absolute part discards those before it.
        path = str(PurePosixPath(self._folder) / within / _decoded(entry.name))
        return path if len(path) <= _LONGEST else None


def _ranges(dwarf: Any, die: Any) -> Iterator[tuple[int, int]]:
    """Yield the code ranges of a DIE."""
    low, high = die.attributes.get("DW_AT_low_pc"), die.attributes.get("DW_AT_high_pc")
    if "DW_AT_ranges" in die.attributes:
        base = die.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
        start = base.value if base else 0
        offset = die.attributes["DW_AT_ranges"].value
        for entry in dwarf.range_lists().get_range_list_at_offset(offset, cu=die.cu):
            if isinstance(entry, BaseAddressEntry):
                start = entry.base_address
            else:
                shift = 0 if entry.is_absolute else start
                yield entry.begin_offset + shift, entry.end_offset + shift
    elif low and high:
        is_address = high.form == "DW_FORM_addr"
        yield low.value, high.value if is_address else low.value + high.value


def _name(die: Any) -> str | None:
    """Return a function's name; declarations and inlined copies refer to each other."""
    plain = ""
    for _ in range(_DEEPEST):
        linkage = _text(die, "DW_AT_linkage_name") or _text(die, "DW_AT_MIPS_linkage_name")
        if linkage:
            return demangle.symbol_name(linkage)
        plain = plain or _text(die, "DW_AT_name")
        further = [
            name
            for name in ("DW_AT_abstract_origin", "DW_AT_specification")
            if name in die.attributes
        ]
        if not further:
            break
        die = die.get_DIE_from_attribute(further[0])
    return _qualified(plain, die) if plain else None


def _qualified(name: str, die: Any) -> str:
    """Return a name qualified by its scopes; static functions need this."""
    for _ in range(_DEEPEST):
        die = die.get_parent()
        if die is None or die.tag not in _SCOPES[1:]:
            break
        name = f"{_text(die, 'DW_AT_name') or _nameless(die, name)}::{name}"
    return name


def _nameless(scope: Any, member: str) -> str:
    """Describe a scope without a name by what it is and contains."""
    if scope.tag == "DW_TAG_namespace":
        return "(anonymous namespace)"
    return "<lambda>" if member.startswith("operator()") else "(anonymous class)"


def _text(die: Any, attribute: str) -> str:
    found = die.attributes.get(attribute)
    text = _decoded(found.value) if found else ""
    return text if len(text) <= _LONGEST else ""


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else ""


def _number(die: Any, attribute: str) -> int | None:
    found = die.attributes.get(attribute)
    return int(found.value) if found and isinstance(found.value, int) else None
