"""The contents of an answer about one block: what it is, what keeps it, what points to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import signatures
from reachscan.grouping.join import Joined
from reachscan.naming import containers
from reachscan.naming.places import Places
from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal
from reachscan.result import BlockAnswer
from reachscan.wording import printable

STATES = {
    model.NO_HEAP: "none",
    model.REACHABLE: "live",
    model.LEAKED: "leaked",
    model.NOT_LIVE: "free",
}
HOLDERS = {
    model.ROOT_MEMORY: "memory",
    model.ROOT_WORD: "word",
    model.REACHABLE_BLOCK: "live block",
    model.LEAKED_BLOCK: "leaked block",
}


class Answer:
    """The answer to a question about one block.

    Attributes:
        state: the block's state, one of `STATES`.
        is_block: it is an allocated block.
        doubt: why it is only possibly leaked (`Leaks.reason`); None if that was not examined.
        chain: the path to it from a root, or, if it is leaked, from the head of its structure.
    """

    def __init__(self, result: BlockAnswer) -> None:
        self.recording = recording = result.recording
        self.block = block = result.block
        self.places = Places(recording, result.folding.joined.space)
        self.state = STATES[block.state]
        self.is_block = block.state in (model.REACHABLE, model.LEAKED)
        self.chain = recording.chain or tuple(_owners(recording.leaks, block))
        self.doubt = _doubt(recording.leaks, block)
        self._joined = result.folding.joined
        self._kinds = _kinds(self._joined)

    def kind(self, address: int) -> Kind:
        """Return what is known about the block that begins at an address."""
        known = self._kinds.get(address)
        return known or _kind_of_leak(self.recording.leaks, self._joined.types, address)


class Kind(NamedTuple):
    """Facts about a block; unknown ones are None."""

    type: str | None = None
    shape: str | None = None
    signature: str | None = None

    def __str__(self) -> str:
        """Return a description for people."""
        return printable(self.type or ": ".join(filter(None, (self.shape, self.signature))))


def _kinds(joined: Joined) -> dict[int, Kind]:
    """Return what is known about the blocks in the stream, by address."""
    words = list(zip_equal(*(column.tolist() for column in joined.codes)))
    rows = zip_equal(
        joined.rows.address.tolist(),
        joined.type.tolist(),
        joined.rows.shape.tolist(),
        words,
    )
    return {
        address: Kind(
            joined.types.names[type_] if type_ >= 0 else None,
            containers.shape_name(shape) or None,
            " | ".join(joined.labels[code] for code in codes if code != signatures.ABSENT),
        )
        for address, type_, shape, codes in rows
    }


def _kind_of_leak(leaks: model.Leaks, types: signatures.Types, address: int) -> Kind:
    found = np.flatnonzero(leaks.address == np.uint64(address))[:1]
    if not len(found):
        return Kind()
    type_ = int(types.at(leaks.type_word[found])[0])
    shape = containers.shape_name(int(leaks.shape[found[0]]))
    return Kind(types.names[type_] if type_ >= 0 else None, shape or None)


def _doubt(leaks: model.Leaks, block: model.Block) -> int | None:
    reasons = leaks.reason[leaks.address == np.uint64(block.start)].tolist()
    return int(reasons[0]) if reasons else None


def _owners(leaks: model.Leaks, block: model.Block) -> Iterator[model.Reference]:
    """Yield the leaked blocks on the path to a leaked one, the head first."""
    position: NDArray[Any] = np.flatnonzero(leaks.address == np.uint64(block.start))
    way: list[int] = []
    while len(position) and leaks.parent[position[0]] != model.DIRECT:
        way.append(int(position[0]))
        position = leaks.parent[position]
    way += position.tolist()
    for below, owner in zip_equal(way[-2::-1], way[:0:-1]):
        address, size, value = leaks.address[owner], leaks.size[owner], leaks.address[below]
        # The stream does not say where in its owner the pointer is.
        yield model.Reference(0, int(value), model.LEAKED_BLOCK, 0, int(address), int(size))
