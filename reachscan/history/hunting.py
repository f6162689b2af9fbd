"""Finds out who allocates leaks: chooses sizes, and records them for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from reachscan.capture import attaching
from reachscan.capture.attaching import Hooks
from reachscan.capture.options import ScanOptions
from reachscan.capture.place import Place
from reachscan.capture.recording_options import MAX_RANGES, RecordingOptions
from reachscan.errors import (
    ConnectionLostError,
    PauseTooLongError,
    ReachscanError,
    RecorderBusyError,
    TargetGoneError,
)
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal
from reachscan.result import LeakScan

Ranges = tuple[tuple[int, int], ...]

_ROUNDING = 31
"""Bytes that glibc and musl may add to a small request."""
_MAPPED = 128 << 10
_PAGE = 4096
"""Minimum bytes of blocks that may be whole pages."""
_CLASSES = 4
"""Other allocators' size classes are at most this fraction of a block apart."""

_TRIES = 4
"""Maximum number of further attempts to remove a recorder."""


def sizes(result: LeakScan) -> Ranges:
    """Return the request sizes that leaked blocks may have been allocated with."""
    usable = np.unique(result.recording.leaks.size).astype(np.int64)
    heaps = result.recording.heaps
    exact = all(heap.allocator.startswith(("glibc", "musl")) for heap in heaps)
    added = np.where(usable < _MAPPED, _ROUNDING, _PAGE + _ROUNDING)
    if not exact:
        added = np.maximum(added, usable // _CLASSES)
    return merged(list(zip_equal(np.maximum(usable - added, 0).tolist(), usable.tolist())))


def known(result: LeakScan) -> frozenset[tuple[int, int]]:
    """Return address and size of all leaked blocks."""
    leaks = result.recording.leaks
    return frozenset(zip_equal(leaks.address.tolist(), leaks.size.tolist()))


def is_unseen(result: LeakScan) -> bool:
    """Return whether the process lost more blocks meanwhile than were recorded."""
    return any(warning.code == model.UNRECORDED for warning in result.warnings)


def merged(ranges: list[tuple[int, int]]) -> Ranges:
    """Return ascending ranges that cover these sizes, at most as many as a recorder accepts."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    while len(found) > MAX_RANGES:
        gaps = [after[0] - before[1] for before, after in zip(found, found[1:])]
        at = gaps.index(min(gaps))
        found[at : at + 2] = [(found[at][0], found[at + 1][1])]
    return tuple(found)


@contextmanager
def recorded(
    place: Place, pid: int, options: RecordingOptions, how: ScanOptions
) -> Iterator[Hooks]:
    """Record the allocations of a process while the block runs.

    Raises:
        ReachscanError: it cannot be recorded, or the recorder cannot be removed.
    """
    try:
        hooks = attaching.attach(place, pid, options, how)
    except ConnectionLostError:
        with suppress(ReachscanError):  # how far it came is not known
            _remove(place, pid, how)
        raise
    try:
        yield hooks
    except TargetGoneError:
        raise  # the recorder is gone with the process
    except BaseException:
        _remove(place, pid, how)
        raise
    _remove(place, pid, how)


def _remove(place: Place, pid: int, how: ScanOptions) -> None:
    """Remove the recorder; retry, since stopping the process may take long on a busy machine."""
    for _ in range(_TRIES):
        try:
            attaching.detach(place, pid, how)
        except (PauseTooLongError, RecorderBusyError):
            continue
        return
    attaching.detach(place, pid, how)
