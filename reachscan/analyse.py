"""From a recording to groups: what is known of blocks is joined to them, then they are folded."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from reachscan import errors
from reachscan.grouping import folding
from reachscan.grouping.groups import Folding
from reachscan.grouping.join import join
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model
from reachscan.result import HeapScan, LeakScan

_Scan = TypeVar("_Scan", LeakScan, HeapScan)


def analyse(recording: model.Recording, *, live: bool) -> Folding:
    """Return how what a recording holds folds.

    Args:
        recording: the decoded stream.
        live: the process still exists, so that files are looked up as it sees them.

    Raises:
        NoSuchAddressError: the address that was asked about is not mapped.
    """
    joined = join(recording, live=live)
    if recording.block is not None:
        _check_address(recording, recording.block.asked, joined.space)
    return folding.fold(joined, recording.contents)


def _check_address(recording: model.Recording, asked: int, space: AddressSpace) -> None:
    if space.mapping_at(np.array([asked], np.uint64))[0] < 0:
        target = recording.target
        raise errors.NoSuchAddressError(
            f"{asked:#x} is in no mapping of {target.name} (pid {target.pid})"
        )


def with_candidates(scan: _Scan, limit: int, *, live: bool) -> _Scan:
    """Return a scan with what its first `limit` groups could be (see `struct_candidates`)."""
    # Readers of debug information take long to load.
    from reachscan.grouping import struct_candidates

    found = struct_candidates.suggest(scan.recording, scan.folding, limit, live=live)
    return scan._replace(candidates=found.structs, remarks=scan.remarks + found.warnings)
