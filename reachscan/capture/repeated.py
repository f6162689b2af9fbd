"""Scans a process several times, to report what all scans found, or what any of them did."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from reachscan import errors
from reachscan.recording.confirm import Confirmer
from reachscan.recording.decode import decode
from reachscan.recording.moments import Moments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reachscan.capture.options import ScanOptions
    from reachscan.capture.place import Life, Place, Progressed
    from reachscan.recording import wire
    from reachscan.recording.merging import Merger

MOMENTS = 5
"""Scans of a thorough one, at most."""
MOMENTS_EVERY = 1.0
"""Seconds between them."""


def confirmed(
    place: Place, pid: int, options: ScanOptions, on_progress: Progressed | None
) -> Iterator[wire.Frame]:
    """Scan `options.confirm` times, and return the stream of the leaks that every scan found.

    `options.timeout` bounds all scans together, with the intervals between them.

    Raises:
        TargetGoneError: the process exited in between, or its id belongs to another one now.
        TimedOutError: the scans took too long.
        ReachscanError: a scan failed.
    """
    every = options.confirm_every
    merger = Confirmer(round(every * 1e9))
    scans = _Scans(place, pid, options, on_progress, merger, options.confirm)
    with place.life(pid) as life:
        scans.scan(life)
        for _ in range(1, options.confirm):
            scans.wait(life, every)
            scans.scan(life)
    return scans.merger.merged()


def thorough(
    place: Place, pid: int, options: ScanOptions, on_progress: Progressed | None
) -> Iterator[wire.Frame]:
    """Scan `MOMENTS` times, and return the stream of the leaks that any scan found.

    A process that does nothing in an interval is not scanned again: nothing can have changed. If it
    exits after a scan, what has been found is returned. Time and other failures are those of
    `confirmed`.
    """
    merger = Moments(round(MOMENTS_EVERY * 1e9))
    scans = _Scans(place, pid, options, on_progress, merger, MOMENTS)
    with place.life(pid) as life:
        scans.scan(life)
        try:
            _scan_again(scans, life)
        except errors.TargetGoneError as gone:
            merger.end(str(gone))
    return merger.merged()


def _scan_again(scans: _Scans, life: Life) -> None:
    for _ in range(1, MOMENTS):
        before = life.activity()
        scans.wait(life, MOMENTS_EVERY)
        if before and before == life.activity():
            scans.merger.rest()
            return
        scans.scan(life)


class _Scans:
    """Scans of one process, one after another."""

    def __init__(
        self,
        place: Place,
        pid: int,
        options: ScanOptions,
        on_progress: Progressed | None,
        merger: Merger,
        most: int,
    ) -> None:
        self.merger, self._most = merger, most
        self._place, self._pid, self._options = place, pid, options
        self._on_progress = on_progress
        self._end = time.monotonic() + (options.timeout or math.inf)

    def wait(self, life: Life, seconds: float) -> None:
        """Let the process run for a while."""
        if life.ends_within(min(seconds, self._end - time.monotonic())):
            done = len(self.merger.pauses)
            raise errors.TargetGoneError(
                f"process {self._pid} exited after {done} of {self._most} scans"
            )

    def scan(self, life: Life) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise errors.TimedOutError(f"the scans took longer than {self._options.timeout:g} s")
        one = self._options._replace(
            timeout=left if self._options.timeout else None,
            digests=True,
            lost_before=self.merger.lost_before,
        )
        with self._place.scan(self._pid, one, self._on_progress) as stream:
            frames = list(stream)
        if life.has_successor():
            raise errors.TargetGoneError(
                f"process {self._pid} exited, and another one has its id now"
            )
        self.merger.add(frames, decode(frames, self._on_progress))
