"""Names words in the thread-local storage that every thread has from its start.

It ends or begins at the thread pointer, depending on the processor (U. Drepper, "ELF Handling For
Thread-Local Storage"). The program's own variables are next to it; those of its libraries are
further away, in an order that only the loader knows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from elftools.elf.elffile import ELFFile

from reachscan.naming import confined, symbols
from reachscan.naming.module_files import ModuleFiles
from reachscan.recording import model
from reachscan.recording.architectures import ARCHITECTURES

STORAGE = "thread-local storage"
"""The symbol of words in this storage that have no better one; their module is empty."""

_RESERVED = 16
"""Bytes between the thread pointer and storage above it: they belong to the C library."""

LARGEST = 1 << 20
"""Maximum plausible size of the storage, in bytes."""


class _Segment(NamedTuple):
    """The thread-local variables of one module."""

    size: int
    alignment: int

    @property
    def room(self) -> int:
        """Its size in memory, aligned."""
        return -(-self.size // self.alignment) * self.alignment

    def first(self, above: bool) -> int:
        """Its start, relative to the thread pointer, if it is next to it."""
        return max(_RESERVED, self.alignment) if above else -self.room


def name_slots(
    files: ModuleFiles, recording: model.Recording, slots: model.Addresses
) -> dict[int, model.Name]:
    """Name the addresses that are in a thread's thread-local storage.

    Args:
        files: of the modules.
        recording: lists the threads.
        slots: any addresses.
    """
    above = ARCHITECTURES[recording.machine].tls_above
    possible = range(_RESERVED, LARGEST) if above else range(-LARGEST, 0)
    pointers = [thread.thread_pointer for thread in recording.threads]
    near = {int(s): int(s) - tp for s in slots for tp in pointers if int(s) - tp in possible}
    if not near:
        return {}

    def room(path: str) -> int:
        with files.opened(path) as elf:
            segment = _segment(elf)
            return segment.room if segment else 0

    files.provide(files.space.modules)
    # An unreadable file may have thread-local storage; its words are called part of a stack.
    found = (answer for _, answer in confined.each(files.space.modules, room))
    most = min(sum(size for size in found if isinstance(size, int)), LARGEST)
    inside = {slot: place for slot, place in near.items() if abs(place) <= most}
    names = {slot: model.Name("", STORAGE, abs(place)) for slot, place in inside.items()}
    return {**names, **_variables(files, recording.target.exe, inside, above)} if inside else {}


def _segment(elf: ELFFile) -> _Segment | None:
    for segment in elf.iter_segments("PT_TLS"):
        return _Segment(int(segment["p_memsz"]), max(1, int(segment["p_align"])))
    return None


def _variables(
    files: ModuleFiles, path: str, near: dict[int, int], above: bool
) -> dict[int, model.Name]:
    """Return the names of words that are variables of a module, the program itself."""
    slots = np.array(sorted(near), np.uint64)

    def read(path: str) -> list[tuple[int, str, int]]:
        with files.opened(path) as elf:
            segment = _segment(elf)
            if segment is None:
                return []
            tables = symbols.tables(elf, path, files.roots, symbols.THREAD_LOCALS)
        first = segment.first(above)
        values = np.array([near[int(slot)] - first for slot in slots], np.int64)
        # Beyond the program's storage, the difference wraps to a huge number, which no symbol has.
        places = values.astype(np.uint64)
        return [row for table in tables for row in table.names(slots, places)]

    return {
        slot: model.Name(path, symbol, offset)
        for path, found in confined.each([path], read)
        if not isinstance(found, confined.Failed)
        for slot, symbol, offset in found
    }
