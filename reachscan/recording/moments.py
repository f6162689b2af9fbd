"""Joins scans of different moments: what one of them finds lost stays lost.

A stale word may hide a leak from one scan and not from another. So each scan is told what those
before it found lost for certain. It reports such a block although a word leads to it now, if the
block still has the same size and contents, as `LOST_BEFORE`: only as possible, since nothing tells
a stale word from a pointer that the earlier scan could not see, as of a block that was on its way
through a queue, nor from one to a new block of the same size and contents.

Nobody can free a lost block, or write to it. If that happened to one, the scan that found it lost
was wrong about it, and perhaps about all of its structure. So none of these blocks is reported for
the sake of that scan, and where the last scan finds them lost by itself, they are in doubt, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.recording import model, wire
from reachscan.recording.merging import Blocks, Merger

_SUSPECT = np.dtype([("address", "<u8"), ("size", "<u8"), ("digest", "<u8")])
"""A block as the helper reads it: abi::Suspect."""


class Moments(Merger):
    """Merges the streams of several scans, each of which was given `lost_before`."""

    def __init__(self, every_ns: int) -> None:
        """Start without a scan; scans are `every_ns` nanoseconds apart."""
        super().__init__(every_ns)
        self._lost = _table(model.Leaks.none())
        self._structure = np.empty(0, np.int64)  # of each of these blocks
        self._structures = 0
        self._withdrawn = self._lost
        self._rested = False

    @property
    def lost_before(self) -> bytes:
        """Blocks that a scan found lost for certain, and no later one free or changed."""
        return np.sort(self._lost, order="address").tobytes()

    def add(self, frames: Sequence[wire.Frame], recording: model.Recording) -> None:
        """Add the next scan; see `Merger.add`."""
        super().add(frames, recording)
        self._withdraw(Blocks.of(self.leaks))
        known = np.isin(_table(self.leaks), self._lost) | self._is_withdrawn()
        new = np.flatnonzero(~known & (self.leaks.reason == model.DEFINITE))
        structure = np.searchsorted(self.leaks.heads, new, side="right") + self._structures
        self._structures += len(self.leaks.heads) + 1
        self._lost = np.concatenate([self._lost, _table(self.leaks)[new]])
        self._structure = np.concatenate([self._structure, structure])

    def _withdraw(self, now: Blocks) -> None:
        """Give up structures of which the last scan did not find all blocks as they were."""
        at = now.find(self._lost["address"], self._lost["size"])
        same = at >= 0
        same[same] = now.digest[at[same]] == self._lost["digest"][same]
        doubted = np.isin(self._structure, self._structure[~same])
        self._withdrawn = np.concatenate([self._withdrawn, self._lost[doubted]])
        self._lost, self._structure = self._lost[~doubted], self._structure[~doubted]

    def _is_withdrawn(self) -> model.Flags:
        """Return which leaks of the last scan are where an earlier one was wrong."""
        columns = ["address", "size"]
        found: model.Flags = np.isin(_table(self.leaks)[columns], self._withdrawn[columns])
        return found

    def rest(self) -> None:
        """Note that there is no further scan, as nothing in the process has run since the last."""
        self._rested = True

    def merged(self) -> Iterator[wire.Frame]:
        """Yield the records of the last scan, with what earlier ones found and it cannot see."""
        withdrawn, hidden = self._is_withdrawn(), self.leaks.reason == model.LOST_BEFORE
        reason = self.leaks.reason.copy()
        reason[withdrawn & (reason == model.DEFINITE)] = model.CHANGED
        kept = ~(withdrawn & hidden)
        return self._written(kept, reason, wire.MOMENTS, self._summary(hidden & kept))

    def _summary(self, hidden: model.Flags) -> dict[str, Any]:
        withdrawn = np.unique(self._withdrawn[["address", "size"]])
        return {
            "hidden": int(hidden.sum()),
            "hidden_bytes": int(self.leaks.size[hidden].sum()),
            "withdrawn": len(withdrawn),
            "withdrawn_bytes": int(withdrawn["size"].sum()),
            "rested": int(self._rested),
        }


def _table(leaks: model.Leaks) -> NDArray[Any]:
    rows = np.empty(len(leaks.address), _SUSPECT)
    rows["address"], rows["size"], rows["digest"] = leaks.address, leaks.size, leaks.digest
    return rows
