"""Keeps only the leaks that every one of several scans of a process found.

A pointer may be hidden from a scan for a moment, and a block may be freed just after. A real leak
stays unreferenced, and its contents do not change. The result is again a stream: that of the last
scan with fewer leaks. Its readers need not know about the other scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan import errors
from reachscan.recording import model, wire
from reachscan.recording.leak_filter import LeakFilter, frame_of


@dataclass(frozen=True)
class _Sighting:
    """The leaks of one scan, by address."""

    address: model.Addresses
    size: model.Addresses
    digest: model.Addresses
    reason: NDArray[np.uint8]

    @classmethod
    def of(cls, leaks: model.Leaks) -> _Sighting:
        order = np.argsort(leaks.address)
        return cls(
            leaks.address[order], leaks.size[order], leaks.digest[order], leaks.reason[order]
        )

    def find(self, address: model.Addresses, size: model.Addresses) -> model.Indexes:
        """Return the positions of other scans' leaks here, -1 for those with no equal."""
        if not len(self.address):
            return np.full(len(address), -1, np.int64)
        at = np.minimum(np.searchsorted(self.address, address), len(self.address) - 1)
        same = (self.address[at] == address) & (self.size[at] == size)
        return np.where(same, at, -1)


def _program(recording: model.Recording) -> tuple[str, int]:
    """Return what exec() changes: the program, and where the kernel put the vdso."""
    vdso = (mapping.start for mapping in recording.mappings if mapping.path == "[vdso]")
    return recording.target.exe, next(vdso, 0)


def _distinct(sightings: Sequence[_Sighting]) -> tuple[model.Addresses, model.Addresses]:
    """Return the distinct pairs of address and size of all blocks seen."""
    none = np.empty(0, np.uint64)
    address = np.concatenate([none, *(sighting.address for sighting in sightings)])
    size = np.concatenate([none, *(sighting.size for sighting in sightings)])
    order = np.lexsort((size, address))
    address, size = address[order], size[order]
    first = np.ones(len(order), bool)
    first[1:] = (address[1:] != address[:-1]) | (size[1:] != size[:-1])
    return address[first], size[first]


class Confirmer:
    """Merges the streams of several scans, made with digests, into one."""

    def __init__(self, every_ns: int) -> None:
        """Start without a scan; scans are `every_ns` nanoseconds apart."""
        self._every_ns = every_ns
        self._earlier: list[_Sighting] = []
        self._warnings: dict[str, model.Warning] = {}
        self._pauses: list[int] = []
        self._frames: list[wire.Frame] = []
        self._leaks: model.Leaks | None = None
        self._program: tuple[str, int] | None = None

    def add(self, frames: Sequence[wire.Frame], recording: model.Recording) -> None:
        """Add the next scan: its records and what they decode to.

        Raises:
            StreamError: it was not made with digests.
            TargetGoneError: the process has executed another program since the last scan.
        """
        if self._program not in (None, program := _program(recording)):
            raise errors.TargetGoneError(
                f"process {recording.target.pid} became another program between the scans"
            )
        self._program = program
        if len(recording.leaks.digest) != len(recording.leaks.address):
            raise errors.StreamError("the scan says nothing of the contents of blocks")
        if self._leaks is not None:
            self._earlier.append(_Sighting.of(self._leaks))
        self._frames, self._leaks = list(frames), recording.leaks
        self._pauses.append(recording.snapshot.pause_ns)
        for warning in recording.warnings:
            self._warnings.setdefault(warning.code, warning)

    def confirmed(self) -> Iterator[wire.Frame]:
        """Yield the records of the last scan, with only the leaks that all scans found."""
        assert self._leaks is not None
        kept, reason = self._compare(self._leaks)
        chosen = LeakFilter(self._leaks, kept, reason)
        yield from chosen.frames(self._frames[:-1])
        said = [wire.parse(frame).code for frame in self._frames if frame.type == wire.WARNING]
        for code, warning in self._warnings.items():
            if code not in said:
                row = {"code": code, "message": f"in one of the scans: {warning.message}"}
                yield frame_of(wire.WARNING, row)
        yield frame_of(wire.CONFIRMATION, self._summary(self._leaks, kept))
        yield chosen.final(self._frames[-1])

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
        gone = size[_Sighting.of(leaks).find(address, size) < 0]
        recent = leaks.size[~kept]
        return {
            "every_ns": self._every_ns,
            "pauses_ns": self._pauses,
            "vanished": len(gone),
            "vanished_bytes": int(gone.sum()),
            "recent": len(recent),
            "recent_bytes": int(recent.sum()),
        }
