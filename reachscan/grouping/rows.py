"""The rows to group: one for each direct leak, or for each kind of live blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reachscan.recording import model

KEY_WORDS = 4
"""Number of leading words that decide which group a block belongs to."""


@dataclass(frozen=True)
class Rows:
    """Blocks in columns, the leading words row by row. Columns may share memory: do not write.

    Attributes:
        position: position of each row in the stream: among all leaks, or among all kinds.
        address, size: address and usable bytes of a block, the example of its row.
        shape: its shape (`model.UNKNOWN_SHAPE`, ...).
        reason: why it is only possibly leaked (`model.ONE_PAST_THE_END`, ...), or `model.DEFINITE`.
        words: its leading words.
        type_word: see `model.Leaks.type_word`.
        is_object: whether it is a leaked Python object.
        count, bytes: number of blocks in the row, and their total bytes.
        below, bytes_below: the same for the blocks below them.
        word: size of a word in bytes.
    """

    position: model.Indexes
    address: model.Addresses
    size: model.Addresses
    shape: NDArray[np.integer[Any]]
    reason: NDArray[np.integer[Any]]
    words: model.Addresses
    type_word: model.Addresses
    is_object: model.Flags
    count: model.Indexes
    bytes: model.Indexes
    below: model.Indexes
    bytes_below: model.Indexes
    word: int = 8

    @classmethod
    def of(cls, recording: model.Recording) -> Rows:
        """Return the rows of a recording."""
        if recording.is_about_leaks:
            return cls._of_leaks(recording.leaks, recording.word)
        return cls._of_kinds(recording.kinds or model.Kinds.none(), recording.word)

    @classmethod
    def _of_kinds(cls, kinds: model.Kinds, word: int) -> Rows:
        nothing = np.broadcast_to(np.int64(0), len(kinds.size))
        return cls(
            position=np.arange(len(kinds.size)),
            address=kinds.example,
            size=kinds.size,
            shape=kinds.shape,
            reason=nothing,
            words=kinds.words,
            type_word=_type_words(kinds, word),
            is_object=np.broadcast_to(np.bool_(False), len(kinds.size)),
            count=kinds.count.astype(np.int64),
            bytes=kinds.bytes.astype(np.int64),
            below=nothing,
            bytes_below=nothing,
            word=word,
        )

    @classmethod
    def _of_leaks(cls, leaks: model.Leaks, word: int) -> Rows:
        heads = leaks.heads
        size = leaks.size[heads]
        # A head and the blocks below it are adjacent in the stream.
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(leaks.size.view(np.int64))])
        ends = np.append(heads[1:], len(leaks.size))
        is_object = np.zeros(len(heads), bool)
        if len(leaks.object_type):
            is_object = leaks.object_type[heads] != 0
        return cls(
            position=heads,
            address=leaks.address[heads],
            size=size,
            shape=leaks.shape[heads],
            reason=leaks.reason[heads],
            words=leaks.words,
            type_word=leaks.type_word[heads],
            is_object=is_object,
            count=np.broadcast_to(np.int64(1), len(heads)),
            bytes=size.view(np.int64),
            below=ends - heads - 1,
            bytes_below=sums[ends] - sums[heads] - size.view(np.int64),
            word=word,
        )

    def key_columns(self) -> Iterable[model.Addresses]:
        """Yield the leading words that decide, column by column; zero beyond the end of a block."""
        for column in range(min(KEY_WORDS, self.words.shape[1])):
            words = np.ascontiguousarray(self.words[:, column])
            yield np.where(self.size >= self.word * (column + 1), words, np.uint64(0))


def _type_words(kinds: model.Kinds, word: int) -> model.Addresses:
    """Return the word that may give each kind's type: see `model.Leaks.type_word`."""
    if not kinds.words.shape[1]:
        return np.zeros(len(kinds.size), np.uint64)
    first = np.where(kinds.size >= word, kinds.words[:, 0], np.uint64(0))
    if not len(kinds.object_type):
        return first
    return np.where(kinds.object_type != 0, kinds.object_type, first)
