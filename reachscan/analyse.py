"""Turns a recording into groups: joins what is known about blocks to them, then folds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from reachscan import errors
from reachscan.grouping import folding
from reachscan.grouping.groups import Folding
from reachscan.grouping.join import join
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model
from reachscan.recording.origins import NO_STACK
from reachscan.result import HeapScan, LeakScan, ScanResult

if TYPE_CHECKING:
    from reachscan.capture.sysroot import Sysroot


def analyse(recording: model.Recording, *, root: Sysroot) -> Folding:
    """Join, name and fold the blocks of a recording.

    Args:
        recording: the decoded stream.
        root: where its files are.

    Raises:
        NoSuchAddressError: the address that was asked about is not mapped.
    """
    joined = join(recording, root=root)
    if recording.block is not None:
        _check_address(recording, recording.block.asked, joined.space)
    return folding.fold(joined, recording.contents)


def with_source_lines(scan: ScanResult, limit: int | None, *, root: Sysroot) -> ScanResult:
    """Return the scan with the calls in its stacks resolved to functions and source lines.

    Args:
        scan: the scan to complete.
        limit: how many groups need source lines (all mappings do); None for all stacks.
        root: where its files are.
    """
    recording, folded = scan.recording, scan.folding
    known = folded.joined.frames
    if recording.stacks is None or not known:
        return scan
    from reachscan.naming import frames
    from reachscan.naming.module_files import ModuleFiles

    wanted = known
    if limit is not None:
        mapped = {mapping.stack for mapping in recording.recorded_mappings or ()}
        stacks = mapped.union(folded.stack[:limit].tolist()) - {NO_STACK}
        wanted = {c: known[c] for stack in stacks for c in recording.stacks.calls(stack)}
    files = ModuleFiles(recording, folded.joined.space, root=root)
    found = {**known, **frames.with_lines(files, wanted)}
    return scan._replace(recording=recording._replace(frames=found))


def _check_address(recording: model.Recording, asked: int, space: AddressSpace) -> None:
    if space.mapping_at(np.array([asked], np.uint64))[0] < 0:
        target = recording.target
        raise errors.NoSuchAddressError(
            f"{asked:#x} is in no mapping of {target.name} (pid {target.pid})"
        )


def with_candidates(
    scan: LeakScan | HeapScan, limit: int, *, root: Sysroot, thorough: bool = False
) -> LeakScan | HeapScan:
    """Return the scan with type candidates for its first groups (see `struct_candidates`)."""
    # Readers of debug information are slow to load.
    from reachscan.grouping import struct_candidates

    found = struct_candidates.suggest(
        scan.recording, scan.folding, limit, root=root, thorough=thorough
    )
    return scan._replace(candidates=found.structs, remarks=scan.remarks + found.warnings)
