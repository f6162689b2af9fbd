"""Joins what is known from elsewhere to the blocks of a scan, before these are folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import signatures
from reachscan.grouping.rows import Rows
from reachscan.grouping.signatures import Names, Types, Words
from reachscan.naming import type_names
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model
from reachscan.recording.origins import NO_STACK, Call, Frames, Stacks

if TYPE_CHECKING:
    from reachscan.capture.sysroot import Sysroot


class Joined(NamedTuple):
    """Blocks, row by row, and what is known of them.

    One more fact about blocks is one more column here. `folding` makes it a part of the key of a
    group, or adds it up; what all blocks of a group share is that of its example.

    Attributes:
        rows: the blocks.
        space: the memory map of the process.
        names: symbols of addresses, as far as they are known.
        types: the types of C++ and Python that there are.
        type: index of the type of each row, -1 if it has none.
        codes: what the leading words of each row are, column by column.
        labels: what the codes are called; the last one is for words that differ within a group.
        stack: number of the stack that allocated each row, `NO_STACK` if it is not known.
        stacks: what the numbers stand for.
        frames: what the calls in stacks are, without their lines.
        warnings: what could not be found out.
    """

    rows: Rows
    space: AddressSpace
    names: Names
    types: Types
    type: model.Indexes
    codes: list[NDArray[np.int32]]
    labels: tuple[str, ...]
    stack: model.Indexes
    stacks: Stacks | None
    frames: Frames
    warnings: tuple[model.Warning, ...]

    def __repr__(self) -> str:
        """Return one line: there may be millions of rows."""
        return f"<Joined: {len(self.type)} rows, {len(self.names)} names>"

    def calls(self, stack: int) -> tuple[Call, ...]:
        """Return the calls that a stack consists of, the innermost first."""
        return self.stacks.calls(stack) if self.stacks else ()


def join(recording: model.Recording, *, root: Sysroot) -> Joined:
    """Return what a recording holds to be folded, and what is known of it.

    Args:
        recording: the decoded stream. If it has names already, no others are looked for.
        root: where its files are.
    """
    space = AddressSpace.of(recording)
    words = Words(Rows.of(recording), space)
    # First, since it may load what names are read with: the reader of files inherits it.
    types = Types.of({**type_names.readable(recording.types), **recording.python_types})
    names, warnings = _names(recording, words, root=root)
    codes, labels = signatures.classify(words, names, recording)
    return Joined(
        rows=words.rows,
        space=space,
        names=names,
        types=types,
        type=types.of_rows(words.rows),
        codes=codes,
        labels=labels,
        stack=_stacks(recording, words.rows),
        stacks=recording.stacks,
        frames=_frames(recording, space, names),
        warnings=warnings,
    )


def _stacks(recording: model.Recording, rows: Rows) -> model.Indexes:
    """Return the number of the stack that allocated each row."""
    origins = recording.origins if recording.is_about_leaks else recording.kind_origins
    if origins is None:
        return np.full(len(rows.size), NO_STACK, np.int64)
    return origins.stack[rows.position]


def _frames(recording: model.Recording, space: AddressSpace, names: Names) -> Frames:
    """Return what the calls in all stacks are."""
    if recording.stacks is None:
        return {}
    # Readers of debug information take long to load, and most processes are not recorded.
    from reachscan.naming import frames

    return frames.without_lines(recording, space, names)


def _names(
    recording: model.Recording, words: Words, *, root: Sysroot
) -> tuple[Names, tuple[model.Warning, ...]]:
    """Return the symbols that leading words and roots deserve, and what could not be read."""
    if recording.names is not None:
        return recording.names, ()
    slots = _roots_to_name(recording)
    calls = recording.stacks.calls_to_name() if recording.stacks else []
    wanted = np.union1d(words.to_name, np.append(slots, np.array(calls, np.uint64)))
    if not len(wanted):
        return {}, ()
    # Readers of symbols take long to load.
    from reachscan.naming import debug_servers, symbols, tls
    from reachscan.naming.module_files import ModuleFiles

    files = ModuleFiles(recording, words.space, root=root)
    of_calls = sorted(files.build_ids(np.array(calls, np.uint64))) if calls else ()
    warnings = tuple(debug_servers.fetch(of_calls))
    named = symbols.name_addresses(files, wanted)
    names = {**named.names, **tls.name_slots(files, recording, slots)}
    return names, named.warnings + warnings


def _roots_to_name(recording: model.Recording) -> model.Addresses:
    """Return the addresses of root memory that a recording's answers are about, ascending."""
    seen = (sighting.word for sighting in recording.sightings)
    references = (*recording.references, *recording.chain, *seen)
    slots = {r.slot for r in references if r.holder == model.ROOT_MEMORY}
    if recording.block is not None:
        slots.add(recording.block.asked)
    return np.array(sorted(slots), np.uint64)
