"""Finds words that could mean a block in whatever form, in all memory and registers of a process.

Like `evidence`, which it is built on, it shares nothing with reachscan. Small numbers are distances
to something by chance, too: so these are looked for also at decoys, addresses near the blocks where
none begins, and count only if so many more of the blocks are hit that chance hardly explains it.
A number that leads to a decoy anywhere is no evidence for a block: many blocks hold such constants.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import evidence
import numpy as np
from numpy.typing import NDArray

from reachscan.recording.zip_equal import zip_equal

Words = evidence.Words
Flags = NDArray[np.bool_]
Flagging = Callable[[Words], Flags]
NEAREST_DECOY, DECOYS_PER_BLOCK, LEAST_DECOYS = 32, 8, 4096
"""A few decoys do not tell how often numbers hit by chance: few blocks get more decoys each."""
UNLIKELY = 0.001
"""A run over all programs compares blocks with decoys some thousand times."""

_LOW_47, _LOW_48 = np.uint64((1 << 47) - 1), np.uint64((1 << 48) - 1)


def _shifted(bits: int) -> Callable[[Words, Words], Words]:
    return lambda words, _: words >> np.uint64(bits)


def _tagged(words: Words, _: Words) -> Words:
    return np.where(words > _LOW_48, words & _LOW_48, 0)


def _boxed(words: Words, _: Words) -> Words:
    return np.where(words > _LOW_48, words & _LOW_47, 0)


def _truncated(words: Words, _: Words) -> Words:
    exponent = words >> np.uint64(52)
    fraction = words & np.uint64((1 << 52) - 1) | np.uint64(1 << 52)
    shift = np.uint64(1023 + 52) - exponent
    return np.where((exponent > 1023 + 20) & (exponent < 1023 + 52), fraction >> shift, 0)


def _relative(words: Words, at: Words) -> Words:
    return np.where(words != 0, words + at, 0)


def _digits_of_30(words: Words, _: Words) -> Words:
    low, high = words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)
    fine = (low < 1 << 30) & (high < 1 << 30) & (high > 0)
    return np.where(fine, high << np.uint64(30) | low, 0)


def _digits_of_15(words: Words, _: Words) -> Words:
    digits = [words >> np.uint64(16 * i) & np.uint64(0xFFFF) for i in range(4)]
    fine = np.logical_and.reduce([digit < 1 << 15 for digit in digits]) & (digits[2] > 0)
    whole = sum((digit << np.uint64(15 * i) for i, digit in enumerate(digits)), start=words * 0)
    return np.where(fine, whole, 0)


def _raised(words: Words, _: Words) -> Words:
    return np.where(words > _LOW_48, words >> np.uint64(16), 0)


def _side_table_of_swift(words: Words, _: Words) -> Words:
    return np.where(words >> np.uint64(61) == 6, words << np.uint64(3), 0)


@dataclass(frozen=True)
class Form:
    """A way to write down an address."""

    name: str
    read: Callable[[Words, Words], Words]
    step: int = 8
    """At which multiples of bytes such a word may begin."""
    inside: bool = False
    """Whether it may mean the inside of a block, too."""


FORMS = (
    Form("pointer", lambda words, _: words, 1, inside=True),
    Form("tagged in 16 high bits", _tagged, 4, inside=True),
    Form("boxed in 17 high bits", _boxed, 4),
    Form("above 16 low bits", _raised, 4, inside=True),
    Form("side table of Swift", _side_table_of_swift),
    *(Form(f"shifted by {bits}", _shifted(bits), 4, inside=True) for bits in range(1, 5)),
    Form("double", _truncated, 4),
    Form("digits of 30 bits", _digits_of_30, 4),
    Form("digits of 15 bits", _digits_of_15, 2),
    Form("relative to the word", _relative, 4),
)
FROM_BLOCK = "relative to its block"
FROM_WORD, HALF_FROM_WORD, HALF_FROM_BLOCK = (
    "relative to the word",
    "32 bits, from the word",
    "32 bits, from its block",
)
DOUBLING = "array of pieces that double"
"""The piece number n has the elements from 2^n on; the word is where element 0 would be."""
SHORT = ", below 4 GiB"
HALF = "32 bits" + SHORT
BY_CHANCE = (FROM_WORD, FROM_BLOCK, HALF_FROM_WORD, HALF_FROM_BLOCK)
"""Small numbers are common. So are those that mean SHORT addresses, except for aligned pointers."""


def _addresses(first: int, step: int, count: int) -> Words:
    return np.arange(first, first + step * count, step, dtype=np.uint64)


@dataclass
class Found:
    """What means some blocks."""

    hits: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """By form: where such words stand, by the number of the block that they mean."""
    chances: dict[str, float] = field(default_factory=dict)
    """How likely so many hits are by chance, by form."""

    def beyond_chance(self) -> dict[str, dict[int, list[int]]]:
        """Return the hits by forms that chance does not explain."""
        chances = self.chances
        return {form: hits for form, hits in self.hits.items() if chances.get(form, 0) < UNLIKELY}

    def suspects(self) -> set[int]:
        return {block for hits in self.beyond_chance().values() for block in hits}


def _decoys(starts: Words, live: Words) -> Words:
    """Return addresses in blocks nearby, on both sides, where none begins."""
    each = max(DECOYS_PER_BLOCK, -(-LEAST_DECOYS // len(starts)))
    distances = range(NEAREST_DECOY, NEAREST_DECOY + 8 * each, 16)
    near = [starts + np.uint64(sign * d % (1 << 64)) for d in distances for sign in (-1, 1)]
    decoys = np.setdiff1d(np.concatenate(near), live[:, 0])
    owner = np.searchsorted(live[:, 0], decoys) - 1
    in_blocks: Words = decoys[(owner >= 0) & (decoys < live[owner, 1])]
    return in_blocks


def _log_ways(items: int, chosen: int) -> float:
    return math.lgamma(items + 1) - math.lgamma(chosen + 1) - math.lgamma(items - chosen + 1)


def chance_of(hits: int, blocks: int, decoys_hit: int, decoys: int) -> float:
    """Return how likely so many of the blocks are hit if each is as likely hit as a decoy."""
    targets, hit = blocks + decoys, hits + decoys_hit
    ways = _log_ways(targets, hit)
    return math.fsum(
        math.exp(_log_ways(blocks, n) + _log_ways(decoys, hit - n) - ways)
        for n in range(hits, min(blocks, hit) + 1)
        if hit - n <= decoys
    )


class _Search:
    """Looks at pieces of memory for words that mean one of the blocks, or a decoy."""

    def __init__(self, starts: Words, sizes: Words, live: Words, bins: Flagging) -> None:
        self._starts, self._sizes, self._live, self._bins = starts, sizes, live, bins
        # Where blocks lie side by side, the end of one is the start of the next.
        self._touching = np.uint64(np.isin(live[:, 1], live[:, 0]).any())
        self._is_low = starts[0] < 1 << 32
        self.found = Found()
        self._decoys = _decoys(starts, live)
        self._low = min(starts[0], *self._decoys[:1])
        self._high = max(starts[-1] + sizes[-1], *self._decoys[-1:])
        self._decoys_hit: dict[str, set[int]] = {}
        self._numbers: dict[str, dict[int, set[int]]] = {}
        self._numbers_of_decoys: dict[str, set[int]] = {}

    def look(self, address: int, data: bytes, in_use: Flagging) -> None:
        for form in FORMS:
            for odd in range(0, 8, form.step):
                whole = (len(data) - odd) & ~7
                words = np.frombuffer(data[odd : odd + whole], dtype=np.uint64)
                at = _addresses(address + odd, 8, len(words))
                self._note_form(form, odd, words, at, in_use)
                if form.read is _relative and odd == 0:
                    self._note_from_blocks(FROM_BLOCK, words, at, in_use)
        self._look_at_halves(address, data, in_use)
        self._look_for_doubling(address, data, in_use)

    def _note_form(self, form: Form, odd: int, words: Words, at: Words, in_use: Flagging) -> None:
        values = form.read(words, at)
        inside = form.inside and (form.name == "pointer" or odd == 0)
        if self._is_low and form.name not in BY_CHANCE and (form.name != "pointer" or odd != 0):
            short = values < 1 << 32
            untagged = np.where(short, values & ~np.uint64(7), 0)
            self._note(form.name + SHORT, untagged, words, at, in_use, False)
            values = np.where(short, 0, values)
        self._note(form.name, values, words, at, in_use, inside)

    def _look_for_doubling(self, address: int, data: bytes, in_use: Flagging) -> None:
        lengths = np.uint64(1) << np.log2(self._sizes).astype(np.uint64)
        order = np.argsort(self._starts - lengths)
        origins = (self._starts - lengths)[order]
        words = np.frombuffer(data[: len(data) & ~7], dtype=np.uint64)
        row = np.minimum(np.searchsorted(origins, words), len(origins) - 1)
        # What points to the start of a block means that one.
        fine = origins[row] == words
        if fine.any():
            fine[fine] = ~np.isin(words[fine], self._live[:, 0])
        length = np.where(fine, lengths[order[row]], 0)
        doubled = (length[:-1] > 0) & (length[1:] == 2 * length[:-1])
        fits = np.append(doubled, False) | np.insert(doubled, 0, False)
        at = _addresses(address, 8, len(words))
        fits &= ~self._bins(at)
        for i in np.flatnonzero(fits)[in_use(at[fits])].tolist():
            block = int(order[row[i]])
            self.found.hits.setdefault(DOUBLING, {}).setdefault(block, []).append(int(at[i]))

    def _look_at_halves(self, address: int, data: bytes, in_use: Flagging) -> None:
        halves = np.frombuffer(data[: len(data) & ~3], dtype=np.int32).astype(np.int64)
        words = halves.view(np.uint64)
        at = _addresses(address, 4, len(words))
        self._note(HALF_FROM_WORD, _relative(words, at), words, at, in_use, False)
        self._note_from_blocks(HALF_FROM_BLOCK, words, at, in_use)
        if not self._is_low:
            return
        short = np.frombuffer(data[: len(data) & ~7], dtype=np.uint32).astype(np.uint64)
        # With zeros behind it, it is a short pointer of 64 bits.
        short[:-1:2][short[1::2] == 0] = 0
        self._note(HALF, short & ~np.uint64(7), short, at[: len(short)], in_use, False)

    def _note_from_blocks(self, name: str, words: Words, at: Words, in_use: Flagging) -> None:
        owner = np.searchsorted(self._live[:, 0], at, side="right") - 1
        if len(at) == 0 or owner[-1] < 0 or self._live[owner[-1], 1] <= at[0]:
            return
        start, end = self._live[owner].T
        # At its end the allocator leaves how large the chunk was while it was free.
        left = (at == end - np.uint64(8)) & (words == end - start + np.uint64(8))
        usable = (owner >= 0) & (at < end) & (words != 0) & ~left
        self._note(name, np.where(usable, start + words, 0), words, at, in_use, False)

    def _note(
        self, name: str, values: Words, words: Words, at: Words, in_use: Flagging, inside: bool
    ) -> None:
        near = np.flatnonzero((values >= self._low) & (values <= self._high))
        values, words, at = values[near], words[near], at[near]
        block = np.searchsorted(self._starts, values, side="right") - 1
        offset = values - self._starts[block]
        most = self._sizes[block] - self._touching if inside else 0
        fine = (block >= 0) & (offset <= most)
        if inside:  # bins hold chunks, which begin at the last word of the block before
            fine &= ~((offset == self._sizes[block] - np.uint64(8)) & self._bins(at))
        usable = in_use(at[fine])
        hits = (column[fine][usable].tolist() for column in (block, words, at))
        for hit_block, number, place in zip_equal(*hits):
            self.found.hits.setdefault(name, {}).setdefault(hit_block, []).append(place)
            self._numbers.setdefault(name, {}).setdefault(hit_block, set()).add(number)
        if not _is_by_chance(name) or len(self._decoys) == 0:
            return
        at_decoy = np.searchsorted(self._decoys, values)
        hit = self._decoys[np.minimum(at_decoy, len(self._decoys) - 1)] == values
        hit[hit] = in_use(at[hit])
        self._decoys_hit.setdefault(name, set()).update(values[hit].tolist())
        self._numbers_of_decoys.setdefault(name, set()).update(words[hit].tolist())

    def finish(self) -> Found:
        """Compare how many blocks and decoys were hit."""
        blocks, decoys = len(self._starts), len(self._decoys)
        for name in filter(_is_by_chance, self.found.hits):
            common = self._numbers_of_decoys.get(name, set())
            hits = sum(bool(numbers - common) for numbers in self._numbers[name].values())
            hit = len(self._decoys_hit.get(name, ()))
            self.found.chances[name] = chance_of(hits, blocks, hit, decoys)
        return self.found


def _is_by_chance(name: str) -> bool:
    return name in BY_CHANCE or name.endswith(SHORT)


def look_for(pid: int, blocks: Sequence[tuple[int, int]], live: Words) -> Found:
    """Return what means `blocks` (address and size, ascending) and is in use.

    Words in the blocks themselves, in free memory of the heap and on dead stacks are not. `live`
    are the starts and ends of all blocks of the heap, as rows, ascending.
    """
    starts, sizes = np.array(blocks, dtype=np.uint64).reshape(-1, 2).T
    state = evidence.Evidence([], [], evidence.mappings_of(pid))
    libc = [m for m in state.mappings if Path(m.path).name.startswith("libc.so")]
    search = _Search(starts, sizes, live, lambda at: _within_any(at, libc))
    with evidence.stopped(pid) as threads:
        for tid in threads:
            words = evidence.registers(tid)
            state.note_thread(words)
            search.look(0, words.tobytes(), lambda at: np.ones(len(at), dtype=bool))
        state.ended_stacks = evidence.ended_stacks(pid, state)
        usable = _in_use(state, starts, sizes, live)
        for address, words in evidence.written_memory(pid, state):
            if address % 8 == 0:
                search.look(address, words.tobytes(), usable)
    return search.finish()


def _within_any(at: Words, mappings: Sequence[evidence.Mapping]) -> Flags:
    inside: Flags = np.zeros(len(at), dtype=bool)
    for m in mappings:
        inside |= (at >= m.start) & (at < m.end)
    return inside


def _in_use(state: evidence.Evidence, starts: Words, sizes: Words, live: Words) -> Flagging:
    heaps = [
        m
        for m in state.mappings
        if np.any((live[:, 0] >= m.start) & (live[:, 0] < m.end))
        and not any(m.start <= pointer < m.end for pointer in state.stack_pointers)
    ]

    def within(at: Words, first: Words, last: Words) -> Flags:
        index = np.searchsorted(first, at, side="right") - 1
        inside: Flags = (index >= 0) & (at < last[index])
        return inside

    def usable(at: Words) -> Flags:
        dead = np.array([state.is_dead(address) for address in at.tolist()], dtype=bool)
        free = _within_any(at, heaps) & ~within(at, live[:, 0], live[:, 1])
        fine: Flags = ~(within(at, starts, starts + sizes) | free | dead)
        return fine

    return usable


def places(found: Found, mappings: Sequence[evidence.Mapping], live: Words) -> Iterator[str]:
    """Describe the hits that count, per form: where most of them are, and one as an example."""

    def place(address: int) -> str:
        index = int(np.searchsorted(live[:, 0], np.uint64(address), side="right")) - 1
        if index >= 0 and address < int(live[index, 1]):
            start, end = live[index].tolist()
            return f"+{address - start:#x} of blocks of {end - start}"
        mapping = next((m for m in mappings if m.start <= address < m.end), None)
        odd = ", unaligned" if address % 8 else ""
        return "a register" if mapping is None else f"{mapping.path or 'anonymous memory'}{odd}"

    for form, hits in found.beyond_chance().items():
        where = Counter(place(at[0]) for at in hits.values())
        said = ", ".join(f"{count} in {path}" for path, count in where.most_common(2))
        chance = f" (by chance: {found.chances[form]:.1g})" if form in found.chances else ""
        yield f"{len(hits)} {form}{chance}: {said}"
