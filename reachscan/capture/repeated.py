"""Scans a process several times, to report only what leaks in every scan."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from reachscan import errors
from reachscan.recording.confirm import Confirmer
from reachscan.recording.decode import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reachscan.capture.options import ScanOptions
    from reachscan.capture.place import Place, Progressed
    from reachscan.recording import wire


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
    confirmer = Confirmer(round(options.confirm_every * 1e9))
    end = time.monotonic() + (options.timeout or math.inf)
    with place.life(pid) as life:
        for done in range(options.confirm):
            if done and life.ends_within(min(options.confirm_every, end - time.monotonic())):
                sentence = f"process {pid} exited after {done} of {options.confirm} scans"
                raise errors.TargetGoneError(sentence)
            left = end - time.monotonic()
            if left <= 0:
                raise errors.TimedOutError(f"the scans took longer than {options.timeout:g} s")
            one = options._replace(timeout=left if options.timeout else None, digests=True)
            with place.scan(pid, one, on_progress) as stream:
                frames = list(stream)
            if life.has_successor():
                raise errors.TargetGoneError(
                    f"process {pid} exited, and another one has its id now"
                )
            confirmer.add(frames, decode(frames, on_progress))
    return confirmer.confirmed()
