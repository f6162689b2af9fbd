"""Joins what is known from elsewhere to the blocks of a scan, before these are folded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import signatures
from reachscan.grouping.rows import Rows
from reachscan.grouping.signatures import Names, Types, Words
from reachscan.naming import type_names
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model


class Joined(NamedTuple):
    """Blocks, row by row, and what is known of them.

    One more fact about blocks is one more column here. `folding` makes it a part of the key of a
    group, or adds it up; what all blocks of a group share is that of its example.

    Attributes:
        rows: the blocks.
        space: the memory map of the process.
        names: symbols of addresses, as far as they are known.
        types: the C++ types that there are.
        type: index of the type of each row, -1 if it has none.
        codes: what the leading words of each row are, column by column.
        labels: what the codes are called; the last one is for words that differ within a group.
        warnings: what could not be found out.
    """

    rows: Rows
    space: AddressSpace
    names: Names
    types: Types
    type: model.Indexes
    codes: list[NDArray[np.int32]]
    labels: tuple[str, ...]
    warnings: tuple[model.Warning, ...]


def join(recording: model.Recording, *, live: bool) -> Joined:
    """Return what a recording holds to be folded, and what is known of it.

    Args:
        recording: the decoded stream. If it has names already, no others are looked for.
        live: the process still exists, so that files are looked up as it sees them.
    """
    space = AddressSpace.of(recording)
    words = Words(Rows.of(recording), space)
    # First, since it may load what names are read with: the reader of files inherits it.
    types = Types.of(type_names.readable(recording.types))
    names, warnings = _names(recording, words, live=live)
    codes, labels = signatures.classify(words, names, recording.regions)
    type_of_row = types.of_rows(words.rows)
    return Joined(words.rows, space, names, types, type_of_row, codes, labels, warnings)


def _names(
    recording: model.Recording, words: Words, *, live: bool
) -> tuple[Names, tuple[model.Warning, ...]]:
    """Return the symbols that leading words and roots deserve, and what could not be read."""
    if recording.names is not None:
        return recording.names, ()
    slots = _roots_to_name(recording)
    wanted = np.union1d(words.to_name, slots)
    if not len(wanted):
        return {}, ()
    # Readers of symbols take long to load.
    from reachscan.naming import symbols, tls
    from reachscan.naming.module_files import ModuleFiles

    files = ModuleFiles(recording, words.space, live=live)
    named = symbols.name_addresses(files, wanted)
    return {**named.names, **tls.name_slots(files, recording, slots)}, named.warnings


def _roots_to_name(recording: model.Recording) -> model.Addresses:
    """Return the addresses of root memory that a recording's answers are about, ascending."""
    seen = (sighting.word for sighting in recording.sightings)
    references = (*recording.references, *recording.chain, *seen)
    slots = {r.slot for r in references if r.holder == model.ROOT_MEMORY}
    if recording.block is not None:
        slots.add(recording.block.asked)
    return np.array(sorted(slots), np.uint64)
