"""Groups blocks that are alike. Pure functions on columns.

Blocks are alike if the same stack allocated them. If no stack is known, they are alike if type,
size and leading words agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import histograms, indirect, origins, texts
from reachscan.grouping.groups import Branch, Example, Folding, Group, Origin, SizeCount
from reachscan.grouping.join import Joined
from reachscan.grouping.rows import Rows
from reachscan.grouping.signatures import ABSENT, DATA, FIRST_PLACE, MIXED, TEXT, ZERO
from reachscan.naming import containers
from reachscan.recording import model
from reachscan.recording.origins import NO_STACK
from reachscan.recording.zip_equal import zip_equal

VALUE = "value"
"""Names in keys for words that are no pointers."""
_MAX_VALUES = 1 << 62
"""Numeric keys of groups are below this."""
_TABLE = 2
"""Keys are renumbered by a table if it has at most this many entries per key: sorting is slow."""
REST = 16
"""If the rest of a free chunk is too small for a chunk of its own, glibc adds it to the block,
which then has this many bytes more than others of the same request."""
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")


def fold(
    joined: Joined, contents: Mapping[int, bytes], apart: model.Indexes | None = None
) -> Folding:
    """Group the direct leaks that are alike, or the kinds of live blocks; largest group first.

    Groups that are only possibly leaked come after all others.

    Args:
        joined: the blocks, and what is known about them.
        contents: contents of some blocks, by position; these become examples of their groups.
        apart: a number per row; texts with different numbers are separate groups.
    """
    rows = joined.rows
    group_of_row, typical = _group(joined)
    separate = np.zeros(len(group_of_row), np.int64) if apart is None else apart
    group_of_row, is_text = _with_texts(joined, group_of_row, typical, separate)
    count = len(is_text)
    blocks, total, below, total_below = (
        _sums(column, group_of_row, count)
        for column in (rows.count, rows.bytes, rows.below, rows.bytes_below)
    )
    example = _examples(rows, contents, group_of_row, typical, count)
    folded = Folding(
        joined=joined,
        group_of_row=group_of_row.astype(np.int32),
        allocations=blocks,
        bytes=total,
        indirect_allocations=below,
        indirect_bytes=total_below,
        example=example,
        type=_common(joined.type, group_of_row, count),
        shape=np.where(is_text, model.STRING, _shapes(rows, group_of_row, count)),
        signature=_signatures(joined, group_of_row, typical, is_text),
    )
    doubtful = folded.reason != model.DEFINITE
    return folded.reordered(
        np.lexsort((rows.address[example], -blocks, -(total + total_below), doubtful))
    )


def groups(
    recording: model.Recording,
    folding: Folding,
    limit: int,
    rows: int,
    candidates: Mapping[int, tuple[str, ...]],
) -> list[Group]:
    """Return the largest groups.

    Args:
        recording: the recording that was folded.
        folding: its groups.
        limit: maximum number of groups.
        rows: maximum number of rows in the histogram and in the tree of each.
        candidates: index of a group -> structs that its blocks could be.
    """
    sizes = histograms.of_groups(folding, limit, rows)
    forest = indirect.grow(recording.leaks, folding, limit, rows)
    where_from = origins.of_groups(recording, folding, limit)
    parts = zip_equal(keys(folding, limit), sizes, forest, where_from)
    return [
        _group_at(recording, folding, i, key, spread, tree, origin, candidates.get(i, ()))
        for i, (key, spread, tree, origin) in enumerate(parts)
    ]


def signature_of(folding: Folding, i: int) -> str:
    """Return descriptions of the leading words of a group."""
    labels = folding.joined.labels
    return " | ".join(labels[code] for code in folding.signature[i] if code != ABSENT)


def places(folding: Folding) -> list[str]:
    """Return the module, or module+symbol, for each code of a signature, or ''."""
    labels = folding.joined.labels
    named = range(FIRST_PLACE, len(labels) - 1)  # the last one is MIXED
    return [_coarse(x, code) if code in named else "" for code, x in enumerate(labels)]


def keys(folding: Folding, limit: int | None = None) -> list[str]:
    """Return the keys (see `Group`) of the `limit` largest groups, or of all."""
    kinds = [_coarse(label, code) for code, label in enumerate(folding.joined.labels)]
    found = [_key(folding, kinds, i) for i in range(len(folding.size[:limit]))]
    by_stack = origins.keys(folding.joined, folding.stack[:limit])
    return [by_stack.get(i, key) for i, key in enumerate(found)]


def _key(folding: Folding, kinds: Sequence[str], i: int) -> str:
    kind = int(folding.type[i])
    if kind >= 0:
        return folding.joined.types.names[kind]
    if folding.shape[i] == model.STRING:
        return containers.shape_name(model.STRING)
    codes = folding.signature[i].tolist()
    words = " | ".join(kinds[code] for code in codes if code != ABSENT)
    return f"{folding.size[i]}: {words}".rstrip(" :")


def _coarse(label: str, code: int) -> str:
    """Return a word's part of a key, without details that vary between equal blocks or builds."""
    if code <= DATA or label == MIXED:
        return VALUE
    # An offset replaces a missing symbol, and changes with the next build.
    return _OFFSET.sub("", label)


def _group_at(
    recording: model.Recording,
    folding: Folding,
    i: int,
    key: str,
    sizes: tuple[SizeCount, ...],
    tree: tuple[Branch, ...],
    origin: Origin | None,
    candidates: tuple[str, ...],
) -> Group:
    joined, row = folding.joined, int(folding.example[i])
    rows, kind = joined.rows, int(folding.type[i])
    size = int(rows.size[row])
    return Group(
        allocations=int(folding.allocations[i]),
        bytes=int(folding.bytes[i]),
        indirect_allocations=int(folding.indirect_allocations[i]),
        indirect_bytes=int(folding.indirect_bytes[i]),
        size=size,
        type=joined.types.names[kind] if kind >= 0 else None,
        shape=None if kind >= 0 else containers.shape_name(int(folding.shape[i])) or None,
        signature=signature_of(folding, i),
        key=key,
        reason=model.Reason(int(rows.reason[row])),
        example=Example(int(rows.address[row]), size, _contents(recording, rows, row)[:size]),
        sizes=sizes,
        tree=tree,
        candidates=candidates,
        origin=origin,
        is_object=bool(rows.is_object[row]),
    )


def _contents(recording: model.Recording, rows: Rows, row: int) -> bytes:
    """Return the known first bytes of a block."""
    if recording.withheld:
        return b""
    words = rows.words[row].astype(f"<u{rows.word}").tobytes()
    return recording.contents.get(int(rows.position[row]), words)


def _group(joined: Joined) -> tuple[model.Indexes, model.Flags]:
    """Return a group number per row, and which rows have the size of their group."""
    rows, typed = joined.rows, _is_named(joined)
    behind_types = len(joined.types.names) + joined.stack
    kind = np.where(joined.stack != NO_STACK, behind_types, joined.type)
    parts = [-1 - kind, 2 * rows.reason.astype(np.int64) + rows.is_object]
    for column in joined.codes:
        # The class of a word may differ between blocks that are alike.
        coarse = np.where((column >= ZERO) & (column <= DATA), ZERO, column)
        coarse[typed] = ABSENT
        parts.append(coarse)
    # The rows again, without words that may belong to the rest of a chunk.
    sizes = np.unique(rows.size[rows.size < rows.word * len(joined.codes)])
    short = np.flatnonzero(~typed & np.isin(rows.size, sizes + np.uint64(REST)))
    shorter = [part[short] for part in parts]
    for i, part in enumerate(shorter[2:]):
        part[rows.size[short] < rows.word * (i + 1) + REST] = ABSENT
    both = _numbered([np.concatenate(pair) for pair in zip_equal(parts, shorter)])
    alike, without_rest = both[: len(typed)], both[: len(typed)].copy()
    without_rest[short] = both[len(typed) :]
    size = np.where(typed, 0, rows.size.astype(np.int64))
    return _with_sizes(alike, without_rest, size, rows.count)


def _numbered(parts: list[NDArray[np.integer[Any]]]) -> model.Indexes:
    """Return a number per row, the same where rows agree in all parts."""
    key = _compact(parts[0].astype(np.int64))
    values = int(key.max(initial=0)) + 1
    for part in parts[1:]:
        width = int(part.max(initial=0)) + 1
        if values <= _TABLE * len(key) or values * width > _MAX_VALUES:
            key = _compact(key)
            values = int(key.max(initial=0)) + 1
        key = key * width + part
        values *= width
    return _compact(key)


def _with_sizes(
    alike: model.Indexes,
    without_rest: model.Indexes,
    size: model.Indexes,
    blocks: model.Indexes,
) -> tuple[model.Indexes, model.Flags]:
    """Return what `_group` returns, for rows that may differ only in size.

    Blocks that include the rest of a chunk join those without, if they are comparatively few.

    Args:
        alike: a number per row, the same where rows differ in their size only.
        without_rest: the same number, computed without the rest of a chunk.
        size: size of each row; all equal if sizes do not matter.
        blocks: number of blocks that each row represents.
    """
    rank = _compact(size)
    width = int(rank.max(initial=0)) + 1
    sizes = np.zeros(width, np.int64)
    sizes[rank] = size
    pair = alike * width + rank
    group = _compact(pair)
    count = int(group.max(initial=-1)) + 1
    pairs, shorter = np.zeros(count, np.int64), np.zeros(count, np.int64)
    pairs[group], shorter[group] = pair, without_rest  # the first ascend
    total = _sums(blocks, group, count)
    without = np.searchsorted(sizes, sizes - REST)
    has_less = sizes[without] == sizes - REST
    wanted = shorter * width + without[pairs % width]
    at = np.minimum(np.searchsorted(pairs, wanted), max(count - 1, 0))
    joins = has_less[pairs % width] & (pairs[at] == wanted) & (total[at] >= texts.RARE * total)
    joins &= ~joins[at]
    joined = np.where(joins, at, np.arange(count))
    return _compact(joined[group]), ~joins[group]


def _with_texts(
    joined: Joined, group_of_row: model.Indexes, typical: model.Flags, apart: model.Indexes
) -> tuple[model.Indexes, model.Flags]:
    """Return the groups of rows with all texts in one group, and which groups hold texts."""
    rows = joined.rows
    size = np.zeros(int(group_of_row.max(initial=-1)) + 1, np.int64)
    size[group_of_row[typical]] = rows.size[typical]
    found = texts.find(rows, joined.codes, ~_is_named(joined), group_of_row, size)
    whole = _compact(texts.join(found, group_of_row, rows.reason, apart))
    is_text = np.zeros(int(whole.max(initial=-1)) + 1, bool)
    is_text[whole] = found[group_of_row]
    return whole, is_text


def _is_named(joined: Joined) -> model.Flags:
    """Return which rows have a stack or a type, so that words and size do not matter."""
    named: model.Flags = (joined.type >= 0) | (joined.stack != NO_STACK)
    return named


def _compact(values: model.Indexes) -> model.Indexes:
    """Renumber values to 0, 1, 2, ... in their order, to keep combined keys small."""
    least = int(values.min(initial=0))
    span = int(values.max(initial=0)) - least + 1
    if span > _TABLE * len(values):
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    place = values - least
    there = np.zeros(span, bool)
    there[place] = True
    rank: model.Indexes = np.cumsum(there, dtype=np.int64) - 1
    return rank[place]


def _sums(values: model.Indexes, group_of_row: model.Indexes, count: int) -> model.Indexes:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group_of_row, values)
    return sums


def _examples(
    rows: Rows,
    contents: Mapping[int, bytes],
    group_of_row: model.Indexes,
    typical: model.Flags,
    count: int,
) -> model.Indexes:
    """Return the example of each group: the first row of its size, preferably with contents."""
    by_address = np.argsort(rows.address)[::-1]
    if contents:
        known = np.isin(rows.position[by_address], np.array(list(contents), np.int64))
        by_address = by_address[np.argsort(known, kind="stable")]
    if not typical.all():
        by_address = by_address[np.argsort(typical[by_address], kind="stable")]
    example = np.zeros(count, np.int64)
    example[group_of_row[by_address]] = by_address  # the last write wins
    return example


def _shapes(rows: Rows, group_of_row: model.Indexes, count: int) -> model.Indexes:
    """Return the shape of more than half of the blocks of each group, or UNKNOWN_SHAPE."""
    shapes = len(containers.SHAPES)
    shape = np.where(rows.shape == model.STRING, model.TEXT, rows.shape)
    known = shape < shapes
    votes = np.zeros(count * shapes, np.int64)
    np.add.at(votes, group_of_row[known] * shapes + shape[known], rows.count[known])
    ballot = votes.reshape(count, shapes)
    winner = ballot.argmax(axis=1) if count else np.empty(0, np.int64)
    decided = 2 * ballot.max(axis=1, initial=0) > _sums(rows.count, group_of_row, count)
    return np.where(decided, winner, model.UNKNOWN_SHAPE)


def _common(values: model.Indexes, group_of_row: model.Indexes, count: int) -> model.Indexes:
    """Return the value that all members of each group have, or -1."""
    common = _per_group(values, group_of_row, count)
    common[group_of_row[values != common[group_of_row]]] = -1
    return common


def _per_group(values: model.Indexes, group_of_row: model.Indexes, count: int) -> model.Indexes:
    """Return the value of each group, which all members agree on."""
    result = np.full(count, -1, np.int64)
    result[group_of_row] = values
    return result


def _signatures(
    joined: Joined, group_of_row: model.Indexes, typical: model.Flags, is_text: model.Flags
) -> model.Indexes:
    """Return one row per group: codes of the leading words, `mixed` if typical members differ."""
    count, mixed = len(is_text), len(joined.labels) - 1
    rows = np.zeros((count, len(joined.codes)), np.int64)
    group = group_of_row[typical]
    for i, column in enumerate(joined.codes):
        member = column[typical]
        some = _per_group(member.astype(np.int64), group, count)
        differs = np.zeros(count, bool)
        differs[group[member != some[group]]] = True
        rows[:, i] = np.where(differs, mixed, some)
    rows[is_text, :1], rows[is_text, 1:] = TEXT, ABSENT
    return rows
