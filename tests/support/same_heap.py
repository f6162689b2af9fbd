"""Compares the blocks that a scan lists with those that the program itself says it has."""

from __future__ import annotations

import numpy as np
from victims import Truth

LARGEST_OWN_BLOCK = 1600
"""What glibc allocates for itself in a program with threads: a DTV for each. It is 16 bytes per
module with thread-local storage and some to spare, never a large block."""
LARGEST_PRELOADED_BLOCK = 90_000
"""What libstdc++ keeps for exceptions."""
OWN_BLOCKS_OF_THREAD = 2
"""libc's vector of thread-local storage and, in jemalloc before 5.3, what it notes of arenas."""


def assert_same_heap(
    found: Truth, truth: Truth, own_blocks: int, largest_own_block: int = LARGEST_OWN_BLOCK
) -> None:
    """Every block of the program is found, once and with its true size.

    Args:
        found: what the scan lists.
        truth: what the program says.
        own_blocks: so many more there may be at most, which the program's libraries made.
        largest_own_block: none of these is larger.
    """
    is_true = np.isin(found[:, 0], truth[:, 0])
    missed = truth[~np.isin(truth[:, 0], found[:, 0])]
    assert len(missed) == 0, f"{len(missed)} blocks missed: {_shown(missed)}"
    extra, found = found[~is_true], found[is_true]
    assert len(found) == len(truth), "a block is listed twice"
    wrong = found[found[:, 1] != truth[:, 1]]
    assert len(wrong) == 0, f"{len(wrong)} sizes are wrong: {_shown(wrong)}"
    assert len(extra) <= own_blocks, f"{len(extra)} blocks too many: {_shown(extra)}"
    oversized = extra[extra[:, 1] > largest_own_block]
    assert len(oversized) == 0, f"these are too large to be a library's own: {_shown(oversized)}"


def assert_same_preloaded_heap(found: Truth, truth: Truth, threads: int) -> None:
    """As `assert_same_heap`, for a program with threads whose allocator is no part of libc.

    libc has its vectors of thread-local storage from that allocator then, and libstdc++, which it
    brings along, some memory for exceptions.
    """
    own = OWN_BLOCKS_OF_THREAD * (threads + 1) + 1
    assert_same_heap(found, truth, own, LARGEST_PRELOADED_BLOCK)


def whole_blocks(found: Truth, pointers: Truth) -> Truth:
    """Return the truth about blocks, of which the program may have pointers into the middle.

    An allocator may give out only the end of a block so that it is aligned, and nothing tells where
    the program's part begins.

    Args:
        found: what the scan lists.
        pointers: what the program says: its pointers, and how many bytes are usable from there.
    """
    below = np.searchsorted(found[:, 0], pointers[:, 0], side="right").astype(np.int64) - 1
    whole: Truth = pointers.copy()
    starts = np.where(below >= 0, found[np.maximum(below, 0), 0], pointers[:, 0])
    whole[:, 0] = starts
    whole[:, 1] = pointers[:, 0] + pointers[:, 1] - starts
    return whole


def _shown(rows: Truth) -> str:
    return ", ".join(f"{int(a):#x} ({int(size)} bytes)" for a, size, _ in rows[:20])
