"""Keeps only the leaks that every one of several scans of a process found.

A pointer may be hidden from a scan for a moment, and a block may be freed just after. A real leak
stays unreferenced, and its contents do not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.recording import model, wire
from reachscan.recording.merging import Blocks, Merger


def _distinct(sightings: Sequence[Blocks]) -> tuple[model.Addresses, model.Addresses]:
    """Return the distinct pairs of address and size of all blocks seen."""
    none = np.empty(0, np.uint64)
    address = np.concatenate([none, *(sighting.address for sighting in sightings)])
    size = np.concatenate([none, *(sighting.size for sighting in sightings)])
    order = np.lexsort((size, address))
    address, size = address[order], size[order]
    first = np.ones(len(order), bool)
    first[1:] = (address[1:] != address[:-1]) | (size[1:] != size[:-1])
    return address[first], size[first]


class Confirmer(Merger):
    """Merges the streams of several scans into one, with the leaks that all of them found."""

    def __init__(self, every_ns: int) -> None:
        """Start without a scan; scans are `every_ns` nanoseconds apart."""
        super().__init__(every_ns)
        self._earlier: list[Blocks] = []

    def add(self, frames: Sequence[wire.Frame], recording: model.Recording) -> None:
        """Add the next scan; see `Merger.add`."""
        before = [Blocks.of(self.leaks)] * bool(self.pauses)
        super().add(frames, recording)
        self._earlier += before

    def merged(self) -> Iterator[wire.Frame]:
        """Yield the records of the last scan, with only the leaks that all scans found."""
        kept, reason = self._compare(self.leaks)
        return self._written(kept, reason, wire.CONFIRMATION, self._summary(self.leaks, kept))

    def _compare(self, leaks: model.Leaks) -> tuple[model.Flags, NDArray[np.uint8]]:
        """Return which leaks of the last scan were in all scans, and why they are in doubt."""
        kept = np.ones(len(leaks.address), bool)
        changed = np.zeros(len(leaks.address), bool)
        reason = leaks.reason.copy()
        for sighting in self._earlier:
            at = sighting.find(leaks.address, leaks.size)
            kept &= at >= 0
            seen = np.flatnonzero(at >= 0)
            changed[seen] |= sighting.digest[at[seen]] != leaks.digest[seen]
            doubted = reason[seen] == model.DEFINITE
            reason[seen[doubted]] = sighting.reason[at[seen[doubted]]]
        reason[changed & (reason == model.DEFINITE)] = model.CHANGED
        return kept, reason

    def _summary(self, leaks: model.Leaks, kept: model.Flags) -> dict[str, Any]:
        address, size = _distinct(self._earlier)
        gone = size[Blocks.of(leaks).find(address, size) < 0]
        recent = leaks.size[~kept]
        return {
            "vanished": len(gone),
            "vanished_bytes": int(gone.sum()),
            "recent": len(recent),
            "recent_bytes": int(recent.sum()),
        }
