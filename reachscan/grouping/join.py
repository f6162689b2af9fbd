"""Joins other facts to the blocks of a scan, before they are folded."""

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
    """Blocks, row by row, and what is known about them.

    To add a fact about blocks, add a column here. `folding` makes it part of the key of a group, or
    sums it up; a fact that all blocks of a group share is that of its example.

    Attributes:
        rows: the blocks.
        space: the memory map of the process.
        names: known symbols of addresses.
        types: all C++ and Python types.
        type: index of each row's type, -1 if it has none.
        codes: codes of the leading words of each row, column by column.
        labels: names of the codes; the last one is for words that differ within a group.
        stack: number of the stack that allocated each row, `NO_STACK` if unknown.
        stacks: the stacks, by number.
        frames: frames of the calls in stacks, without lines.
        warnings: facts that could not be found out.
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
        """Return the calls of a stack, the innermost first."""
        return self.stacks.calls(stack) if self.stacks else ()


def join(recording: model.Recording, *, root: Sysroot) -> Joined:
    """Return the blocks of a recording, joined with what is known about them.

    Args:
        recording: the decoded stream. If it has names, no others are looked up.
        root: where to find its files.
    """
    space = AddressSpace.of(recording)
    words = Words(Rows.of(recording), space)
    # First, since it may load modules that the process that reads files can then share.
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
    """Return the frames of the calls in all stacks."""
    if recording.stacks is None:
        return {}
    # Readers of debug information are slow to load, and most processes are not recorded.
    from reachscan.naming import frames

    return frames.without_lines(recording, space, names)


def _names(
    recording: model.Recording, words: Words, *, root: Sysroot
) -> tuple[Names, tuple[model.Warning, ...]]:
    """Return symbols for leading words and roots, and warnings about unreadable files."""
    if recording.names is not None:
        return recording.names, ()
    slots = _roots_to_name(recording)
    calls = recording.stacks.calls_to_name() if recording.stacks else []
    wanted = np.union1d(words.to_name, np.append(slots, np.array(calls, np.uint64)))
    if not len(wanted):
        return {}, ()
    # Readers of symbols are slow to load.
    from reachscan.naming import debug_servers, symbols, tls
    from reachscan.naming.module_files import ModuleFiles

    files = ModuleFiles(recording, words.space, root=root)
    of_calls = sorted(files.build_ids(np.array(calls, np.uint64))) if calls else ()
    warnings = tuple(debug_servers.fetch(of_calls))
    named = symbols.name_addresses(files, wanted)
    names = {**named.names, **tls.name_slots(files, recording, slots)}
    return names, named.warnings + warnings


def _roots_to_name(recording: model.Recording) -> model.Addresses:
    """Return the addresses of root memory in a recording's answers, ascending."""
    seen = (sighting.word for sighting in recording.sightings)
    references = (*recording.references, *recording.chain, *seen)
    slots = {r.slot for r in references if r.holder == model.ROOT_MEMORY}
    if recording.block is not None:
        slots.add(recording.block.asked)
    return np.array(sorted(slots), np.uint64)
