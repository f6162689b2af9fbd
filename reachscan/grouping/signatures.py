"""Classifies the leading words of blocks: pointers by target, texts, numbers. Works on columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import cpp_strings
from reachscan.grouping.rows import Rows
from reachscan.naming import containers
from reachscan.naming.memory_map import AddressSpace, Intervals
from reachscan.recording import model

SMALL = 1 << 16
"""Words of smaller magnitude are shown as `int`."""

# Codes of words. Those up to DATA differ only in how a word is shown: in the key of a group they
# are one class. Modules and named places follow from FIRST_PLACE on.
ABSENT, ZERO, INT, TEXT, DATA, HEAP, LINK, FIRST_PLACE = range(8)
MIXED = "\u00b7"
_BASIC_LABELS = ("", "zero", "int", "text", "data", "heap", "link")

_PRINTABLE = np.zeros(256, bool)
_PRINTABLE[[9, 10, 13, *range(32, 127)]] = True

Names = Mapping[int, model.Name]
Mappings = NDArray[np.integer[Any]]


class Words:
    """The leading words of all rows, and what they point into; computed once.

    Attributes:
        rows: the rows.
        space: the mappings of the target.
        mappings: for each column of words, the index of each word's mapping, -1 if it has none.
        to_name: the distinct words that need a symbol, ascending: pointers to code of a module,
            and the first two words if they point to its data.
    """

    def __init__(self, rows: Rows, space: AddressSpace) -> None:
        self.rows = rows
        self.space = space
        self.mappings: list[NDArray[np.int32]] = []
        found = [np.empty(0, np.uint64)]
        for column, words in enumerate(self.rows.key_columns()):
            mapping = self.space.mapping_at(words).astype(np.int32)  # half as large
            self.mappings.append(mapping)
            found.append(np.unique(words[_is_nameable(self.space, mapping, column)]))
        self.to_name: model.Addresses = np.unique(np.concatenate(found))


class Types(NamedTuple):
    """C++ and Python types.

    Attributes:
        names: readable names.
        addresses: addresses of vtables and of Python types, ascending.
        of_address: index into `names` of each.
    """

    names: tuple[str, ...]
    addresses: model.Addresses
    of_address: model.Indexes

    @classmethod
    def of(cls, type_names: Mapping[int, str]) -> Types:
        """Return the types, given the name of each address."""
        names = tuple(sorted(set(type_names.values())))
        index = {name: i for i, name in enumerate(names)}
        addresses = sorted(type_names)
        which = [index[type_names[address]] for address in addresses]
        return cls(names, np.array(addresses, np.uint64), np.array(which, np.int64))

    def at(self, words: model.Addresses) -> model.Indexes:
        """Return the index of the type for each block's `type_word`, -1 if it has none."""
        if not len(self.addresses):
            return np.full(len(words), -1, np.int64)
        at = np.minimum(np.searchsorted(self.addresses, words), len(self.addresses) - 1)
        return np.where(self.addresses[at] == words, self.of_address[at], -1)

    def of_rows(self, rows: Rows) -> model.Indexes:
        """Return the index of each row's type, -1 if it has none."""
        return self.at(rows.type_word)


def _is_nameable(space: AddressSpace, mapping: Mappings, column: int) -> model.Flags:
    distinct = _is_distinguishing(space, mapping, column)
    # The first word of an object, or the second behind a counter, often identifies its type.
    if column <= 1:
        distinct |= space.is_constant(mapping) | space.is_variable(mapping)
    return distinct


def _is_distinguishing(space: AddressSpace, mapping: Mappings, column: int) -> model.Flags:
    """Return which words are distinguished by their address if it has no symbol.

    Objects of one type begin with the same vtable, but need not point to the same text.
    """
    code = space.is_code(mapping)
    return code | space.is_constant(mapping) if column == 0 else code


def classify(
    of: Words, names: Names, recording: model.Recording
) -> tuple[list[NDArray[np.int32]], tuple[str, ...]]:
    """Return a code per leading word of each row, by column, and the codes' labels.

    The last label is `MIXED`, which no word has of its own.

    Args:
        of: the words.
        names: known symbols of the addresses in `Words.to_name`.
        recording: the scan that the words come from.
    """
    rows, space, named = of.rows, of.space, of.to_name
    heap = Intervals(recording.regions.start, recording.regions.end)
    place_names = [_place(int(address), names, space) for address in named]
    labels = (*_BASIC_LABELS, *sorted({*place_names, *map(_file_name, space.modules)}), MIXED)
    code_of = {label: code for code, label in enumerate(labels) if code >= FIRST_PLACE}
    code_of_module = np.array([code_of[_file_name(m)] for m in space.modules] + [0], np.int32)
    code_of_place = np.array([code_of[place] for place in place_names] + [0], np.int32)
    has_symbol = np.array([int(address) in names for address in named] + [False])
    columns: list[NDArray[np.int32]] = []
    for column, (words, mapping) in enumerate(zip(rows.key_columns(), of.mappings)):
        codes = _plain_codes(words, rows, mapping)
        module = space.module_of[mapping]
        codes = np.where(module >= 0, code_of_module[module], codes)
        at = np.searchsorted(named, words)
        exact = _is_nameable(space, mapping, column)
        exact &= has_symbol[at] | _is_distinguishing(space, mapping, column)
        codes[exact] = code_of_place[at[exact]]
        codes[heap.find(words) >= 0] = HEAP
        # At the ends of a list or tree, some links are null or lead outside; nothing else differs.
        codes[np.isin(rows.shape, containers.nodes_with_link(column))] = LINK
        pointers = np.flatnonzero(codes > DATA)
        codes[cpp_strings.unused(recording, rows, column, pointers)] = DATA
        codes[rows.size < rows.word * (column + 1)] = ABSENT
        columns.append(codes)
    return columns, labels


def _plain_codes(words: model.Addresses, rows: Rows, mapping: Mappings) -> NDArray[np.int32]:
    """Return the codes of words that are not taken for pointers.

    Args:
        words: their values.
        rows: the blocks that contain them.
        mapping: index of the mapping that each points into, -1 if none.
    """
    codes = np.full(len(words), DATA, np.int32)
    # All bytes of an address may be letters in one run of a program, but not in the next.
    letters = np.flatnonzero(_is_text(words))
    is_address = (mapping[letters] >= 0) | _may_be_left_at(rows.address[letters], words[letters])
    codes[letters[~is_address]] = TEXT
    wrapped = words + np.uint64(SMALL) & np.uint64((1 << 8 * rows.word) - 1)
    codes[wrapped < np.uint64(2 * SMALL)] = INT  # negative ones too
    codes[words == 0] = ZERO
    return codes


def _may_be_left_at(places: model.Addresses, words: model.Addresses) -> model.Flags:
    """Return which words are in the same address range as their places: native/memory/leftover.hpp.

    Pointers to unmapped memory and free-list links in blocks that were once free are, too.
    """
    bits = np.frexp(places.astype(np.float64))[1]  # exact: no address has more than 53 bits
    near: model.Flags = (words ^ places) >> np.maximum(bits - 12, 0).astype(np.uint64) == 0
    return near


def _is_text(words: model.Addresses) -> model.Flags:
    """Return which words are printable ASCII, perhaps padded with zero bytes at the end."""
    text = np.zeros(len(words), bool)
    # Most words are no text: testing one byte first leaves few for the full test.
    likely = np.flatnonzero(_PRINTABLE[(words & np.uint64(0xFF)).astype(np.uint8)])
    raw = words[likely].astype("<u8").view(np.uint8).reshape(-1, 8)
    printable = _PRINTABLE[raw]
    clean = (printable | (raw == 0)).all(axis=1)
    resumes = (~printable[:, :-1] & printable[:, 1:]).any(axis=1)
    text[likely] = clean & ~resumes
    return text


def _place(address: int, names: Names, space: AddressSpace) -> str:
    name = names.get(address)
    if name is not None:
        return f"{_file_name(name.module)}+{name.symbol}"
    mapping = space.mapping_at(np.array([address], np.uint64))
    module = space.modules[int(space.module_of[mapping][0])]
    return f"{_file_name(module)}+{address - space.bases[module]:#x}"


def _file_name(path: str) -> str:
    return PurePosixPath(path).name
