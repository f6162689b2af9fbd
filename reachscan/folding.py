"""Groups leaked blocks that are alike. Pure functions on the model, on columns throughout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from reachscan import histograms, model, trees
from reachscan.address_space import AddressSpace, Intervals

KEY_WORDS = 4
"""Leading words that decide which group a block belongs to."""

SMALL = 1 << 16
"""Words of smaller magnitude are shown as `int`."""

# Codes of what a word can be. Those up to DATA only tell how a word is shown: for the key of a
# group they are one class. Modules and named places follow from FIRST_PLACE on.
ABSENT, ZERO, INT, TEXT, DATA, HEAP, FIRST_PLACE = range(7)
MIXED = "\N{MIDDLE DOT}"
VALUE = "value"
"""What keys call words that are no pointers."""
_OFFSET = re.compile(r"\+0x[0-9a-f]+$")
_BASIC_LABELS = ("", "zero", "int", "text", "data", "heap")

_PRINTABLE = np.zeros(256, bool)
_PRINTABLE[[9, 10, 13, *range(32, 127)]] = True

Names = Mapping[int, model.Name]


def pointers_to_name(recording: model.Recording) -> model.Addresses:
    """Return the distinct leading words of direct leaks that deserve a symbol, ascending.

    Those are pointers to code of a module, and first words that point to its constants.
    """
    space = AddressSpace(recording.mappings, recording.modules)
    found = [np.empty(0, np.uint64)]
    for column, words in enumerate(_key_columns(recording.leaks)):
        found.append(np.unique(words[_deserves_name(space, space.mapping_at(words), column)]))
    return np.unique(np.concatenate(found))


def fold(recording: model.Recording, names: Names, type_names: Mapping[int, str]) -> model.Folding:
    """Group the direct leaks that are alike, largest group first.

    Args:
        recording: the decoded stream.
        names: symbols of the addresses that `pointers_to_name` returns, as far as known.
        type_names: address of a vtable -> demangled name of its type.
    """
    leaks = recording.leaks
    types, vtables, type_of_vtable = _types(type_names)
    head_type = _head_types(leaks, vtables, type_of_vtable)
    codes, labels = _classify(recording, names)
    group_of_head, count = _group(leaks, head_type, codes)
    totals = _Totals.of(leaks, group_of_head, count)
    example = _examples(recording, group_of_head, count)
    order = np.lexsort(
        (leaks.address[example], -totals.blocks, -(totals.bytes + totals.indirect_bytes))
    )
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    spans = np.diff(np.append(leaks.heads, len(leaks.address)))
    return model.Folding(
        allocations=totals.blocks[order],
        bytes=totals.bytes[order],
        indirect_allocations=totals.indirect_blocks[order],
        indirect_bytes=totals.indirect_bytes[order],
        example=example[order],
        type=_per_group(head_type, group_of_head, count)[order],
        types=types,
        vtables=vtables,
        type_of_vtable=type_of_vtable,
        signature=_signatures(codes, group_of_head, count, len(labels) - 1)[order],
        labels=labels,
        group_of_leak=np.repeat(rank[group_of_head], spans),
    )


def groups(
    recording: model.Recording, folding: model.Folding, limit: int, rows: int
) -> list[model.Group]:
    """Return the `limit` largest groups, with `rows` rows of histogram and of tree each."""
    leaks = recording.leaks
    sizes = histograms.of_groups(leaks, folding, limit, rows)
    forest = trees.grow(leaks, folding, limit, rows)
    parts = zip(keys(recording, folding, limit), sizes, forest, strict=True)
    return [_group_at(recording, folding, i, *part) for i, part in enumerate(parts)]


def keys(recording: model.Recording, folding: model.Folding, limit: int | None = None) -> list[str]:
    """Return the keys (see `model.Group`) of the `limit` largest groups, or of all."""
    sizes = recording.leaks.size[folding.example[:limit]].tolist()
    kinds = [_coarse(label, code) for code, label in enumerate(folding.labels)]
    codes_of = folding.signature[:limit].tolist()
    rows = zip(folding.type[:limit].tolist(), sizes, codes_of, strict=True)
    return [_key(folding, kinds, kind, size, codes) for kind, size, codes in rows]


def _key(
    folding: model.Folding, kinds: Sequence[str], kind: int, size: int, codes: Sequence[int]
) -> str:
    if kind >= 0:
        return folding.types[kind]
    return f"{size}: {' | '.join(kinds[code] for code in codes if code != ABSENT)}".rstrip(" :")


def _coarse(label: str, code: int) -> str:
    """Return what a key says of a word: what differs among equal blocks or builds is left out."""
    if code <= DATA or label == MIXED:
        return VALUE
    # An offset stands for a place without a symbol, and is another one in the next build.
    return _OFFSET.sub("", label)


def _group_at(
    recording: model.Recording,
    folding: model.Folding,
    i: int,
    key: str,
    sizes: tuple[model.SizeCount, ...],
    tree: tuple[model.Branch, ...],
) -> model.Group:
    leaks, position, kind = recording.leaks, int(folding.example[i]), int(folding.type[i])
    size = int(leaks.size[position])
    words = leaks.words[np.searchsorted(leaks.heads, position)]
    contents = recording.contents.get(position, words.astype("<u8").tobytes())
    labels = [folding.labels[code] for code in folding.signature[i] if code != ABSENT]
    return model.Group(
        allocations=int(folding.allocations[i]),
        bytes=int(folding.bytes[i]),
        indirect_allocations=int(folding.indirect_allocations[i]),
        indirect_bytes=int(folding.indirect_bytes[i]),
        size=size,
        type=folding.types[kind] if kind >= 0 else None,
        signature=" | ".join(labels),
        key=key,
        example=model.Example(int(leaks.address[position]), size, contents[:size]),
        sizes=sizes,
        tree=tree,
    )


def _key_columns(leaks: model.Leaks) -> Iterable[model.Addresses]:
    """Yield the leading words that decide, column by column; zero past the end of a block."""
    size = leaks.size[leaks.heads]
    for column in range(min(KEY_WORDS, leaks.words.shape[1])):
        words = np.ascontiguousarray(leaks.words[:, column])
        yield np.where(size >= 8 * (column + 1), words, np.uint64(0))


def _deserves_name(space: AddressSpace, mapping: model.Indexes, column: int) -> model.Flags:
    named = space.is_code(mapping)
    return named | space.is_constant(mapping) if column == 0 else named


def _types(
    type_names: Mapping[int, str],
) -> tuple[tuple[str, ...], model.Addresses, model.Indexes]:
    """Return the type names; the vtables in order, and for each an index into the names."""
    types = tuple(sorted(set(type_names.values())))
    index = {name: i for i, name in enumerate(types)}
    vtables = sorted(type_names)
    which = [index[type_names[vtable]] for vtable in vtables]
    return types, np.array(vtables, np.uint64), np.array(which, np.int64)


def _head_types(
    leaks: model.Leaks, vtables: model.Addresses, type_of_vtable: model.Indexes
) -> model.Indexes:
    """Return for each direct leak an index into the type names, or -1."""
    if not len(vtables) or not leaks.words.shape[1]:
        return np.full(len(leaks.heads), -1, np.int64)
    first = next(iter(_key_columns(leaks)))
    at = np.minimum(np.searchsorted(vtables, first), len(vtables) - 1)
    return np.where(vtables[at] == first, type_of_vtable[at], -1)


def _classify(
    recording: model.Recording, names: Names
) -> tuple[list[NDArray[np.int32]], tuple[str, ...]]:
    """Return a code per leading word of each direct leak, by column, and the codes' labels.

    The last label is `MIXED`, which no word has of its own.
    """
    leaks = recording.leaks
    space = AddressSpace(recording.mappings, recording.modules)
    heap = Intervals(recording.regions.start, recording.regions.end)
    named = pointers_to_name(recording)
    place_names = [_place(int(address), names, space) for address in named]
    labels = (*_BASIC_LABELS, *sorted({*place_names, *map(_file_name, space.modules)}), MIXED)
    code_of = {label: code for code, label in enumerate(labels) if code >= FIRST_PLACE}
    code_of_module = np.array([code_of[_file_name(m)] for m in space.modules] + [0], np.int32)
    code_of_place = np.array([code_of[place] for place in place_names] + [0], np.int32)
    size = leaks.size[leaks.heads]
    columns: list[NDArray[np.int32]] = []
    for column, words in enumerate(_key_columns(leaks)):
        codes = _plain_codes(words)
        mapping = space.mapping_at(words)
        module = space.module_of[mapping]
        codes = np.where(module >= 0, code_of_module[module], codes)
        exact = _deserves_name(space, mapping, column)
        codes[exact] = code_of_place[np.searchsorted(named, words[exact])]
        codes[heap.find(words) >= 0] = HEAP
        codes[size < 8 * (column + 1)] = ABSENT
        columns.append(codes)
    return columns, labels


def _plain_codes(words: model.Addresses) -> NDArray[np.int32]:
    """Return what words look like that are taken for no pointer."""
    codes = np.full(len(words), DATA, np.int32)
    codes[_is_text(words)] = TEXT
    codes[words + np.uint64(SMALL) < np.uint64(2 * SMALL)] = INT  # wraps: negative ones too
    codes[words == 0] = ZERO
    return codes


def _is_text(words: model.Addresses) -> model.Flags:
    """Return which words are printable ASCII, padded with zero bytes at their end at most."""
    text = np.zeros(len(words), bool)
    # Most words are no text: looking at one byte first leaves few to look at closely.
    likely = np.flatnonzero(_PRINTABLE[(words & np.uint64(0xFF)).astype(np.uint8)])
    raw = words[likely].astype("<u8").view(np.uint8).reshape(-1, 8)
    printable = _PRINTABLE[raw]
    clean = (printable | (raw == 0)).all(axis=1)
    resumes = (~printable[:, :-1] & printable[:, 1:]).any(axis=1)
    text[likely] = clean & ~resumes
    return text


def _place(address: int, names: Names, space: AddressSpace) -> str:
    name = names.get(address)
    if name is not None:
        return f"{_file_name(name.module)}+{name.symbol}"
    mapping = space.mapping_at(np.array([address], np.uint64))
    module = space.modules[int(space.module_of[mapping][0])]
    return f"{_file_name(module)}+{address - space.bases[module]:#x}"


def _file_name(path: str) -> str:
    return PurePosixPath(path).name


def _group(
    leaks: model.Leaks, head_type: model.Indexes, codes: list[NDArray[np.int32]]
) -> tuple[model.Indexes, int]:
    """Return a group number per direct leak, and how many groups there are."""
    typed = head_type >= 0
    size = leaks.size[leaks.heads].astype(np.int64)
    key = _compact(np.where(typed, -1 - head_type, size))
    for column in codes:
        # What a word looks like may differ between blocks that are alike.
        coarse = np.where((column >= ZERO) & (column <= DATA), ZERO, column)
        coarse[typed] = ABSENT
        key = _compact(key * (int(coarse.max(initial=0)) + 1) + coarse)
    return key, int(key.max(initial=-1)) + 1


def _compact(values: model.Indexes) -> model.Indexes:
    """Renumber values to 0, 1, 2 ... in their order, so that combined keys stay small."""
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class _Totals:
    blocks: model.Indexes
    bytes: model.Indexes
    indirect_blocks: model.Indexes
    indirect_bytes: model.Indexes

    @classmethod
    def of(cls, leaks: model.Leaks, group_of_head: model.Indexes, count: int) -> _Totals:
        if not count:
            empty = np.empty(0, np.int64)
            return cls(empty, empty, empty, empty)
        own = leaks.size[leaks.heads].astype(np.int64)
        # A head and what hangs below it are neighbours in the stream.
        subtree = np.add.reduceat(leaks.size.view(np.int64), leaks.heads)
        below = np.diff(np.append(leaks.heads, len(leaks.address))) - 1

        def per_group(values: model.Indexes) -> model.Indexes:
            sums = np.zeros(count, np.int64)
            np.add.at(sums, group_of_head, values)
            return sums

        return cls(
            np.bincount(group_of_head, minlength=count).astype(np.int64),
            per_group(own),
            per_group(below),
            per_group(subtree - own),
        )


def _examples(
    recording: model.Recording, group_of_head: model.Indexes, count: int
) -> model.Indexes:
    """Return the block that stands for each group: the lowest, of those with contents if any."""
    leaks = recording.leaks
    address = leaks.address[leaks.heads]
    by_address = np.argsort(address)[::-1]
    if recording.contents:
        known = np.isin(leaks.heads[by_address], np.array(list(recording.contents), np.int64))
        by_address = by_address[np.argsort(known, kind="stable")]
    example = np.zeros(count, np.int64)
    example[group_of_head[by_address]] = leaks.heads[by_address]  # the last one written stays
    return example


def _per_group(values: model.Indexes, group_of_head: model.Indexes, count: int) -> model.Indexes:
    """Return the value of each group, where all members agree on it."""
    result = np.full(count, -1, np.int64)
    result[group_of_head] = values
    return result


def _signatures(
    codes: list[NDArray[np.int32]], group_of_head: model.Indexes, count: int, mixed: int
) -> model.Indexes:
    """Return one row per group: what each leading word is, `mixed` where members differ."""
    rows = np.zeros((count, len(codes)), np.int64)
    for i, column in enumerate(codes):
        some = _per_group(column.astype(np.int64), group_of_head, count)
        differs = np.zeros(count, bool)
        differs[group_of_head[column != some[group_of_head]]] = True
        rows[:, i] = np.where(differs, mixed, some)
    return rows
