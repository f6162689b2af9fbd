"""What an address points into: a heap region, a module, or neither. Vectorised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.naming.owners import owners_of
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal


class Intervals:
    """Half-open address ranges that do not overlap, for looking many addresses up at once."""

    def __init__(self, starts: model.Addresses, ends: model.Addresses) -> None:
        self._order = np.argsort(starts, kind="stable")
        self._starts = starts[self._order]
        self._ends = ends[self._order]

    def find(self, addresses: model.Addresses) -> model.Indexes:
        """Return the index of the range that contains each address, -1 if none does."""
        if not len(self._starts):
            return np.full(len(addresses), -1, np.int64)
        candidate = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (candidate >= 0) & (addresses < self._ends[candidate])
        return np.where(inside, self._order[candidate], -1)


class AddressSpace:
    """The mappings of the target, and which module each belongs to.

    Attributes:
        modules: paths of the modules, in order of first mapping.
        bases: address of the first mapping of each module.
        module_of: index of each mapping's module, -1 if it belongs to none.
    """

    def __init__(self, mappings: Sequence[model.Mapping], modules: Sequence[model.Module]) -> None:
        self._find_mapping = Intervals(
            np.array([m.start for m in mappings], np.uint64),
            np.array([m.end for m in mappings], np.uint64),
        )
        self._mappings = mappings
        owners = owners_of(mappings, modules)
        self.modules = tuple(dict.fromkeys(path for path in owners if path))
        index = {path: i for i, path in enumerate(self.modules)}
        self.module_of = np.array([index.get(path, -1) for path in owners] + [-1], np.int64)
        self.bases: dict[str, int] = {}
        for mapping, owner in zip_equal(mappings, owners):
            if owner:
                self.bases[owner] = min(mapping.start, self.bases.get(owner, mapping.start))
        permissions = [m.permissions for m in mappings] + [0]
        of_module = self.module_of >= 0
        self._code = of_module & [bool(p & model.EXECUTE) for p in permissions]
        self._variable = of_module & [bool(p & model.WRITE) for p in permissions]
        self._constant = of_module & [p & (model.READ | model.WRITE) == 1 for p in permissions]

    @classmethod
    def of(cls, recording: model.Recording) -> AddressSpace:
        """Return the memory map of the recorded process. Build it once, and pass it on."""
        return cls(recording.mappings, recording.modules)

    def file_offset(self, mapping: int) -> int:
        """Return what to add to an address in a mapping (an index) to get its offset in the file.

        A .bss is not in the file: its offsets continue those of the data.
        """
        while mapping > 0 and not self._mappings[mapping].path and self.module_of[mapping] >= 0:
            mapping -= 1
        return self._mappings[mapping].offset - self._mappings[mapping].start

    def mapping_at(self, addresses: model.Addresses) -> model.Indexes:
        """Return the index of each address's mapping, -1 if it has none."""
        return self._find_mapping.find(addresses)

    def module_of_address(self, address: int) -> str | None:
        """Return the path of the module that contains an address; None if none does."""
        module = int(self.module_of[self.mapping_at(np.array([address], np.uint64))][0])
        return self.modules[module] if module >= 0 else None

    def is_code(self, mapping: NDArray[np.integer[Any]]) -> model.Flags:
        """Return which of these mappings (indexes) are executable and belong to a module."""
        found: model.Flags = self._code[mapping]
        return found

    def is_constant(self, mapping: NDArray[np.integer[Any]]) -> model.Flags:
        """Return which of these mappings (indexes) are read-only and belong to a module."""
        found: model.Flags = self._constant[mapping]
        return found

    def is_variable(self, mapping: NDArray[np.integer[Any]]) -> model.Flags:
        """Return which of these mappings (indexes) are writable and belong to a module."""
        found: model.Flags = self._variable[mapping]
        return found
