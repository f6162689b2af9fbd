"""Makes texts of all lengths one kind, since their lengths say little about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping.rows import Rows
from reachscan.grouping.signatures import DATA
from reachscan.recording import model

RARE = 8
"""Blocks that differ by chance are that many times fewer than those that they belong to."""


def find(
    rows: Rows,
    codes: Sequence[NDArray[np.int32]],
    untyped: model.Flags,
    group_of_row: model.Indexes,
    size: model.Indexes,
) -> model.Flags:
    """Return which groups consist of texts, most of them as long as their blocks allow.

    A struct may begin with a text, too: then blocks of its size hold pointers as well, or own
    others. Behind the zero byte of a text may be a pointer that is left from an earlier use of the
    memory, but only few of them have one.

    Args:
        rows: what is grouped.
        codes: what the leading words of each row are, by column.
        untyped: which rows have no C++ type.
        group_of_row: members agree in which of their words are pointers, and in their reason.
        size: of most blocks of each group.
    """
    count = len(size)
    blocks, texts = np.zeros(count, np.int64), np.zeros(count, np.int64)
    is_text = untyped & (rows.shape == model.STRING) & (rows.below == 0)
    np.add.at(blocks, group_of_row, rows.count)
    np.add.at(texts, group_of_row, rows.count * is_text)
    mostly = 2 * texts > blocks
    plain = np.zeros(count, bool)
    plain[group_of_row] = np.logical_and.reduce([column <= DATA for column in codes])
    reason = np.zeros(count, np.int64)
    reason[group_of_row] = rows.reason
    found = mostly & plain
    alike = np.unique(np.stack([reason, size]), axis=1, return_inverse=True)[1].reshape(-1)
    usual = np.zeros(count, np.int64)
    np.add.at(usual, alike[found], blocks[found])
    return found | (mostly & (usual[alike] >= RARE * blocks))


def join(
    found: model.Flags,
    group_of_row: model.Indexes,
    reason: NDArray[np.integer[Any]],
    apart: model.Indexes,
) -> model.Indexes:
    """Return a group for each row: one for all texts of a reason that are not apart."""
    joined: model.Indexes = group_of_row.copy()
    chosen = found[group_of_row]
    joined[chosen] = len(found) + apart[chosen] * len(model.Reason) + reason[chosen]
    return joined
