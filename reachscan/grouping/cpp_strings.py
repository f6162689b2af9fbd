"""Finds std::string (libstdc++) in blocks, whose unused bytes say nothing about the block.

A string consists of a pointer to its characters, their number, and 16 bytes. A short string stores
its characters in these bytes. A long one stores its capacity in the first 8 of them, and leaves the
others as they were.
"""

from __future__ import annotations

import numpy as np

from reachscan.grouping.rows import Rows
from reachscan.recording import model

_ROOM = 16
"""Bytes behind the pointer and the length."""

SHORT = _ROOM - 1
"""Characters that fit into a string itself."""

_ROUNDING = 40
"""A block exceeds the requested size by less than this, even with the rest of a free chunk."""


def unused(recording: model.Recording, rows: Rows, word: int, some: model.Indexes) -> model.Indexes:
    """Return the rows in which a leading word may be an unused part of a string."""
    address, words = rows.address[some], rows.words[some, : word + 1]
    found = np.zeros(len(some), bool)
    for begin in range(max(0, word - 1 - _ROOM // rows.word), word - 1):
        found |= _short(address, words, begin, rows.word)
        if begin < word - 2 and recording.kinds is None:
            found |= _long(recording, words, begin)
    return some[found]


def _short(address: model.Addresses, words: model.Addresses, begin: int, word: int) -> model.Flags:
    text, length = words[:, begin], words[:, begin + 1]
    is_short: model.Flags = (text == address + np.uint64(word * (begin + 2))) & (length <= SHORT)
    return is_short


def _long(recording: model.Recording, words: model.Addresses, begin: int) -> model.Flags:
    text, length, capacity = (words[:, begin + i] for i in range(3))
    found: model.Flags = (length <= capacity) & (text != 0)
    if recording.withheld:  # withheld: other small numbers replace them
        found &= capacity == 1
        return found
    found &= (capacity > SHORT) & (capacity < np.uint64(1 << 40))
    found[found] = _has_equal_size(recording.leaks, text[found], capacity[found])
    return found


def _has_equal_size(
    leaks: model.Leaks, address: model.Addresses, capacity: model.Addresses
) -> model.Flags:
    """Return which leaks were allocated for a text of a capacity and its terminating zero."""
    if not len(address):
        return np.zeros(0, bool)
    order = np.argsort(leaks.address)
    at = order[np.minimum(np.searchsorted(leaks.address[order], address), len(order) - 1)]
    # Unsigned: blocks smaller than the text wrap around, out of range.
    more = leaks.size[at] - capacity - np.uint64(1)
    fits: model.Flags = (leaks.address[at] == address) & (more < _ROUNDING)
    return fits
