"""Names words in the thread-local storage that every thread has from its start.

It ends at the thread pointer (variant II of U. Drepper, "ELF Handling For Thread-Local Storage");
the variables of the program itself come last, those of its libraries lie below in an order that
only the loader knows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile

from reachscan.naming import confined, symbols
from reachscan.naming.module_files import ModuleFiles
from reachscan.recording import model

STORAGE = "thread-local storage"
"""The symbol of words in it that have no better one; their module is empty."""

LARGEST = 1 << 20
"""Storage that claims to be larger is not believed, bytes."""


class _Segment(NamedTuple):
    """The thread-local variables of one module."""

    size: int
    alignment: int

    @property
    def reach(self) -> int:
        """How far below the thread pointer it begins, if it comes last."""
        return -(-self.size // self.alignment) * self.alignment


def name_slots(
    files: ModuleFiles, recording: model.Recording, slots: model.Addresses
) -> dict[int, model.Name]:
    """Name those of some addresses that lie in the thread-local storage of a thread.

    Args:
        files: of the modules.
        recording: says which threads there are.
        slots: any addresses.
    """
    pointers = [thread.thread_pointer for thread in recording.threads]
    below = {int(s): tp - int(s) for s in slots for tp in pointers if 0 < tp - int(s) <= LARGEST}
    if not below:
        return {}

    def reach(path: str) -> int:
        with files.opened(path) as elf:
            segment = _segment(elf)
            return segment.reach if segment else 0

    files.provide(files.space.modules)
    # A file that cannot be read may have none; if it has, some words are called part of a stack.
    found = (answer for _, answer in confined.each(files.space.modules, reach))
    most = min(sum(size for size in found if isinstance(size, int)), LARGEST)
    inside = {slot: distance for slot, distance in below.items() if distance <= most}
    names = {slot: model.Name("", STORAGE, distance) for slot, distance in inside.items()}
    return {**names, **_variables(files, recording.target.exe, inside)} if inside else {}


def _segment(elf: ELFFile) -> _Segment | None:
    for segment in elf.iter_segments("PT_TLS"):
        return _Segment(int(segment["p_memsz"]), max(1, int(segment["p_align"])))
    return None


def _variables(files: ModuleFiles, path: str, below: dict[int, int]) -> dict[int, model.Name]:
    """Return the names of those words that are variables of a module, the program itself."""
    slots = np.array(sorted(below), np.uint64)

    def read(path: str) -> list[tuple[int, str, int]]:
        with files.opened(path) as elf:
            segment = _segment(elf)
            if segment is None:
                return []
            tables = symbols.tables(elf, path, files.roots, symbols.THREAD_LOCALS)
        values = np.array([segment.reach - below[int(slot)] for slot in slots], np.int64)
        # Where a program has none so far down, the difference becomes a huge number: no symbol's.
        places = values.astype(np.uint64)
        return [row for table in tables for row in table.names(slots, places)]

    return {
        slot: model.Name(path, symbol, offset)
        for path, found in confined.each([path], read)
        if not isinstance(found, confined.Failed)
        for slot, symbol, offset in found
    }
