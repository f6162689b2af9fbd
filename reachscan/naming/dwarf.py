"""Reads structs and classes from DWARF: names, sizes, and the kinds of their leading words.

Debug information is large and slow to read, and the result is only a hint: reading stops after a
while, and skips anything unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile

from reachscan.naming.elf_files import DAMAGE

WORD_BYTES = 8
"""Languages whose structs are read."""

WORDS = 4
"""Number of leading words that are classified."""

LONGEST = 4096
"""Longer names are left out: they are unreadable."""

POINTER, FUNCTION, WORD, OTHER, ANY, NOTHING = (
    *("pointer", "function", "word", "other", "any", "nothing"),
)
"""What a word of a struct can be: `FUNCTION` points to one, `WORD` is an integer of its size,
`OTHER` something that is no pointer, `ANY` could be anything, `NOTHING` is padding."""

_STRUCTS = ("DW_TAG_structure_type", "DW_TAG_class_type")
_POINTERS = (
    "DW_TAG_pointer_type",
    "DW_TAG_reference_type",
    "DW_TAG_rvalue_reference_type",
)
_WRAPPERS = (
    "DW_TAG_typedef",
    "DW_TAG_const_type",
    "DW_TAG_volatile_type",
    "DW_TAG_restrict_type",
    "DW_TAG_atomic_type",
)
_FLOAT = 4  # DW_ATE_float
_DEEPEST = 16


class OutOfTimeError(Exception):
    """The time was too short for all debug information."""


class Struct(NamedTuple):
    """A struct or class: qualified name, size in bytes, kinds of its leading words."""

    name: str
    size: int
    words: tuple[str, ...]


def size_of_debug_information(elf: ELFFile) -> int:
    """Return the size of a file's debug information in bytes."""
    section = elf.get_section_by_name(".debug_info")
    return int(section.data_size) if section else 0


def structs(elf: ELFFile, wanted: Callable[[int], bool], deadline: float) -> Iterator[Struct]:
    """Yield the structs and classes of wanted sizes in a file.

    Args:
        elf: a file with debug information.
        wanted: returns whether structs of a size in bytes are wanted.
        deadline: when to stop, on the clock `time.monotonic`.

    Raises:
        OutOfTimeError: the deadline passed before the end.
    """
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False, follow_links=False)
    for unit in dwarf.iter_CUs():
        try:
            yield from _Unit(wanted, deadline).structs(unit.get_top_DIE(), "")
        except DAMAGE:
            continue


class _Unit:
    """Reads one compilation unit."""

    def __init__(self, wanted: Callable[[int], bool], deadline: float) -> None:
        self._wanted = wanted
        self._deadline = deadline

    def structs(self, parent: Any, scope: str) -> Iterator[Struct]:
        nameless: dict[int, Any] = {}
        typedefs: dict[int, str] = {}  # typedef struct { ... } name;
        for die in parent.iter_children():
            if time.monotonic() > self._deadline:
                raise OutOfTimeError
            name = _name(die)
            if die.tag == "DW_TAG_namespace":
                yield from self.structs(die, f"{scope}{name or '(anonymous namespace)'}::")
            elif die.tag == "DW_TAG_typedef" and "DW_AT_type" in die.attributes:
                target = die.attributes["DW_AT_type"]
                if target.form.startswith("DW_FORM_ref") and isinstance(target.value, int):
                    typedefs[target.value + die.cu.cu_offset] = name
            elif die.tag in _STRUCTS and self._wanted(_byte_size(die)):
                if name:
                    yield from self._struct(die, scope + name)
                else:
                    nameless[die.offset] = die
        for offset in nameless.keys() & typedefs.keys():
            yield from self._struct(nameless[offset], scope + typedefs[offset])

    def _struct(self, die: Any, name: str) -> Iterator[Struct]:
        if len(name) > LONGEST:
            return
        size = _byte_size(die)
        words = [NOTHING] * min(WORDS, -(-size // WORD_BYTES))
        try:
            _lay_out(die, 0, words, 0)
        except DAMAGE:
            words = [ANY] * len(words)
        yield Struct(name, size, tuple(words))


def _lay_out(die: Any, offset: int, words: list[str], depth: int) -> None:
    """Classify leading words by the members of a struct at an offset."""
    for member in die.iter_children():
        if member.tag not in ("DW_TAG_member", "DW_TAG_inheritance"):
            continue
        if "DW_AT_external" in member.attributes or "DW_AT_declaration" in member.attributes:
            continue  # a static member
        place = member.attributes.get("DW_AT_data_member_location")
        at = offset + (int(place.value) if place else 0)
        if at < WORD_BYTES * len(words):
            _put(_stripped(member.get_DIE_from_attribute("DW_AT_type")), at, words, depth)


def _put(kind: Any, at: int, words: list[str], depth: int) -> None:
    if at >= WORD_BYTES * len(words) or depth > _DEEPEST:
        return
    if kind.tag in _STRUCTS:
        _lay_out(kind, at, words, depth + 1)
    elif kind.tag == "DW_TAG_array_type":
        element = _stripped(kind.get_DIE_from_attribute("DW_AT_type"))
        size = _byte_size(element)
        for i in range(min(_length(kind), -(-WORD_BYTES * len(words) // size) if size else 0)):
            _put(element, at + i * size, words, depth + 1)
    elif kind.tag in _POINTERS:
        words[at // WORD_BYTES] = FUNCTION if _points_to_function(kind) else POINTER
    elif kind.tag in ("DW_TAG_union_type", "DW_TAG_ptr_to_member_type"):
        for i in range(at // 8, min(len(words), (at + _byte_size(kind) + 7) // 8)):
            words[i] = ANY
    else:
        encoding = kind.attributes.get("DW_AT_encoding")
        whole = _byte_size(kind) == WORD_BYTES and not (encoding and encoding.value == _FLOAT)
        words[at // WORD_BYTES] = WORD if whole else OTHER


def _points_to_function(pointer: Any) -> bool:
    if "DW_AT_type" not in pointer.attributes:
        return False  # void*
    target = _stripped(pointer.get_DIE_from_attribute("DW_AT_type"))
    return bool(target.tag == "DW_TAG_subroutine_type")


def _stripped(die: Any) -> Any:
    for _ in range(_DEEPEST):
        if die.tag not in _WRAPPERS or "DW_AT_type" not in die.attributes:
            break
        die = die.get_DIE_from_attribute("DW_AT_type")
    return die


def _length(array: Any) -> int:
    for child in array.iter_children():
        for attribute, more in (("DW_AT_upper_bound", 1), ("DW_AT_count", 0)):
            bound = child.attributes.get(attribute)
            if bound is not None and isinstance(bound.value, int):
                return int(bound.value) + more
    return 0


def _byte_size(die: Any) -> int:
    size = die.attributes.get("DW_AT_byte_size")
    if size is not None and isinstance(size.value, int):
        return int(size.value)
    return WORD_BYTES if die.tag in _POINTERS else 0


def _name(die: Any) -> str:
    name = die.attributes.get("DW_AT_name")
    return name.value.decode("utf-8", "backslashreplace") if name else ""
