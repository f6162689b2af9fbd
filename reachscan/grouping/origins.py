"""Who allocated groups of blocks, if that is recorded, or if their allocator knows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping.groups import Estimate, Folding, Origin, Thread
from reachscan.grouping.join import Joined
from reachscan.grouping.rows import Rows
from reachscan.recording import model
from reachscan.recording.origins import NO_STACK, NOT_RECORDED, Origins, RecordedThread, Recorder
from reachscan.recording.zip_equal import zip_equal

_IN_KEY = 3
"""Number of functions in the key of a stack; a digest represents the others."""
_DIGEST = 12
_UNNAMED_THREAD = RecordedThread(0, "")


def of_groups(recording: model.Recording, folding: Folding, limit: int) -> list[Origin | None]:
    """Return who allocated the blocks of the largest groups; None for those without a stack.

    Args:
        recording: the scan.
        folding: its groups.
        limit: maximum number of groups.
    """
    rows, count = folding.joined.rows, min(limit, len(folding.example))
    recorder, origins = recording.recorder, _of_rows(recording, rows)
    if origins is None:
        return [None] * count
    order = np.argsort(folding.group_of_row, kind="stable")
    bounds = np.searchsorted(folding.group_of_row[order], np.arange(count + 1))
    found: list[Origin | None] = []
    for group, stack in enumerate(folding.stack[:count].tolist()):
        which = order[bounds[group] : bounds[group + 1]]
        some = origins.some(which)
        origin = Origin(stack, ())
        if recorder:
            oldest, newest = int(some.oldest_ms.min()), int(some.newest_ms.max())
            origin = origin._replace(
                threads=_threads(some, rows.count[which], recording.recorded_threads),
                oldest_us=recorder.age_us(oldest),
                newest_us=recorder.age_us(newest),
                estimated=_estimate(recorder, some, rows, which) if recorder.sample else None,
            )
        found.append(origin if stack != NO_STACK else None)
    return found


def _of_rows(recording: model.Recording, rows: Rows) -> Origins | None:
    origins = recording.origins if recording.is_about_leaks else recording.kind_origins
    return origins.some(rows.position) if origins else None


def _threads(
    origins: Origins, blocks: model.Indexes, known: Mapping[int, RecordedThread]
) -> tuple[Thread, ...]:
    numbers, which = np.unique(origins.thread, return_inverse=True)
    counts = np.zeros(len(numbers), np.int64)
    np.add.at(counts, which.reshape(-1), blocks)
    found = []
    for number, count in zip_equal(numbers.tolist(), counts.tolist()):
        if number == NOT_RECORDED:
            continue
        thread = known.get(number, _UNNAMED_THREAD)
        found.append(Thread(thread.name, thread.tid, count))
    return tuple(sorted(found, key=lambda thread: (-thread.allocations, thread.tid)))


def weights(recorder: Recorder, origins: Origins) -> NDArray[np.float64]:
    """Return how many blocks each recorded one represents, if allocations are sampled.

    A block of S bytes is recorded with probability 1 - exp(-S / mean distance).
    """
    size = np.maximum(origins.requested.astype(np.float64), 1.0)
    weight: NDArray[np.float64] = 1.0 / -np.expm1(-size / recorder.sample)
    return weight


def _estimate(recorder: Recorder, origins: Origins, rows: Rows, which: model.Indexes) -> Estimate:
    weight = weights(recorder, origins)
    allocations = float((weight * rows.count[which]).sum())
    return Estimate(round(allocations), round(float((weight * rows.bytes[which]).sum())))


def keys(joined: Joined, stacks: model.Indexes) -> dict[int, str]:
    """Return keys by stack: the innermost functions, and a digest of the rest.

    Args:
        joined: blocks, and what is known about them.
        stacks: the stacks of some groups.
    """
    labels = {call: frames[-1].label for call, frames in joined.frames.items()}
    return {
        i: _key([labels[call] for call in joined.calls(stack)])
        for i, stack in enumerate(stacks.tolist())
        if stack != NO_STACK
    }


def _key(labels: Sequence[str]) -> str:
    shown = " < ".join(labels[:_IN_KEY])
    if len(labels) <= _IN_KEY:
        return shown
    digest = hashlib.sha256("\n".join(labels).encode()).hexdigest()
    return f"{shown} < [{digest[:_DIGEST]}]"
