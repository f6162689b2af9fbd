"""Merges the streams of several scans of one process into one.

The result is again a stream: that of the last scan with fewer leaks, or more doubts. Its readers
need not know about the other scans.
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

ENDED_EARLY = "ended-early"
"""The code of the warning that there are fewer scans than wanted."""


@dataclass(frozen=True)
class Blocks:
    """Blocks in columns, by address; no two have the same address and size."""

    address: model.Addresses
    size: model.Addresses
    digest: model.Addresses
    reason: NDArray[np.uint8]

    @classmethod
    def of(cls, leaks: model.Leaks) -> Blocks:
        """Return the leaks of a scan."""
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


class Merger:
    """The scans so far, which were made with digests, and what all ways of merging them need.

    Attributes:
        every_ns: time between two scans, in ns.
        pauses: how long the process was stopped for each scan, in ns.
        leaks: those of the last scan.
    """

    def __init__(self, every_ns: int) -> None:
        """Start without a scan."""
        self.every_ns = every_ns
        self.pauses: list[int] = []
        self.leaks = model.Leaks.none()
        self._warnings: dict[str, model.Warning] = {}
        self._frames: list[wire.Frame] = []
        self._program: tuple[str, int] | None = None
        self._ended = ""

    @property
    def lost_before(self) -> bytes:
        """What the next scan has to know of those before it, as the helper reads it."""
        return b""

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
        self._frames, self.leaks = list(frames), recording.leaks
        self.pauses.append(recording.snapshot.pause_ns)
        for warning in recording.warnings:
            self._warnings.setdefault(warning.code, warning)

    def rest(self) -> None:
        """Note that nothing in the process has run since the last scan."""

    def end(self, why: str) -> None:
        """Note, in a sentence for users, why there are fewer scans than wanted."""
        self._ended = why

    def merged(self) -> Iterator[wire.Frame]:
        """Yield the records of the last scan, changed to what all scans say."""
        raise NotImplementedError

    def _written(
        self, kept: model.Flags, reason: NDArray[np.uint8], summary: int, body: dict[str, Any]
    ) -> Iterator[wire.Frame]:
        """Yield the records of the last scan, with some of its leaks, doubts, and a summary."""
        chosen = LeakFilter(self.leaks, kept, reason)
        yield from chosen.frames(self._frames[:-1])
        said = [wire.parse(frame).code for frame in self._frames if frame.type == wire.WARNING]
        for code, warning in self._warnings.items():
            if code not in said:
                row = {"code": code, "message": f"in one of the scans: {warning.message}"}
                yield frame_of(wire.WARNING, row)
        if self._ended:
            yield frame_of(wire.WARNING, {"code": ENDED_EARLY, "message": self._ended})
        yield frame_of(summary, {"every_ns": self.every_ns, "pauses_ns": self.pauses, **body})
        yield chosen.final(self._frames[-1])


def _program(recording: model.Recording) -> tuple[str, int]:
    """Return what exec() changes: the program, and where the kernel put the vdso."""
    vdso = (mapping.start for mapping in recording.mappings if mapping.path == "[vdso]")
    return recording.target.exe, next(vdso, 0)
