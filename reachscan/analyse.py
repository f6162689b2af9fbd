"""Names and groups what a scan found."""

from __future__ import annotations

import numpy as np

from reachscan import errors
from reachscan.grouping import folding, signatures
from reachscan.grouping.groups import Folding
from reachscan.naming import type_names
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model
from reachscan.result import ScanResult


def analyse(recording: model.Recording, *, live: bool) -> tuple[model.Recording, Folding]:
    """Return a recording with the names of what it holds, and how that folds.

    Args:
        recording: the decoded stream.
        live: the process still exists, so that files are looked up as it sees them.

    Raises:
        NoSuchAddressError: the address that was asked about is not mapped.
    """
    if recording.block is not None:
        _check_address(recording, recording.block)
    words = signatures.Words(recording)
    # First, since it may load what names are read with: the reader of files inherits it.
    types = type_names.readable(recording.types)
    if recording.names is None:
        recording = _named(recording, words.to_name, live=live)
    return recording, folding.fold(recording, recording.names or {}, types, words)


def with_candidates(result: ScanResult, limit: int, *, live: bool) -> ScanResult:
    """Return a scan with what its first `limit` groups could be (see `struct_candidates`)."""
    # Readers of debug information take long to load.
    from reachscan.grouping import struct_candidates

    recording = result.recording
    found = struct_candidates.suggest(recording, result.folding, limit, live=live)
    recording = recording._replace(warnings=recording.warnings + found.warnings)
    return result._replace(recording=recording, candidates=found.structs)


def _check_address(recording: model.Recording, block: model.Block) -> None:
    asked = np.array([block.asked], np.uint64)
    if AddressSpace(recording.mappings, recording.modules).mapping_at(asked)[0] < 0:
        target = recording.target
        raise errors.NoSuchAddressError(
            f"{block.asked:#x} is in no mapping of {target.name} (pid {target.pid})"
        )


def _named(recording: model.Recording, pointers: model.Addresses, *, live: bool) -> model.Recording:
    slots = _roots_to_name(recording)
    wanted = np.union1d(pointers, slots)
    if not len(wanted):
        return recording._replace(names={})
    # Readers of symbols take long to load.
    from reachscan.naming import symbols, tls

    named = symbols.name_addresses(recording, wanted, live=live)
    thread_local = tls.name_slots(recording, slots, live=live)
    return recording._replace(
        names={**named.names, **thread_local}, warnings=recording.warnings + named.warnings
    )


def _roots_to_name(recording: model.Recording) -> model.Addresses:
    """Return the addresses of root memory that a recording's answers are about, ascending."""
    seen = (sighting.word for sighting in recording.sightings)
    references = (*recording.references, *recording.chain, *seen)
    slots = {r.slot for r in references if r.holder == model.ROOT_MEMORY}
    if recording.block is not None:
        slots.add(recording.block.asked)
    return np.array(sorted(slots), np.uint64)
