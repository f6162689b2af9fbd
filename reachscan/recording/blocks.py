"""Blocks in columns: the leaks of a scan, kinds of live blocks, and where heaps are.

numpy takes longer to load than a scan, and many scans find nothing: until there are columns, only
its types are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reachscan.recording.arrays import Addresses, Indexes


class Regions(NamedTuple):
    """Address ranges [start, end) that an allocator carves blocks from, in columns."""

    start: Addresses
    end: Addresses
    kind: NDArray[np.uint32]
    arena: NDArray[np.uint32]

    @classmethod
    def of(cls, rows: bytes) -> Regions:
        """Return the columns of the rows in a regions record."""
        import numpy as np

        layout = np.dtype([("start", "<u8"), ("end", "<u8"), ("kind", "<u4"), ("arena", "<u4")])
        table = np.frombuffer(rows, layout)
        return cls(*(np.ascontiguousarray(table[column]) for column in cls._fields))


class Leaks(NamedTuple):
    """All leaked blocks in stream order, in columns.

    Attributes:
        address: where each block begins.
        size: usable bytes of each block.
        parent: position of the leak through which it was reached, `DIRECT` for a head.
        heads: positions of the direct leaks, ascending; each is followed by what it alone owns.
        words: leading words of each direct leak, one row per entry of `heads`.
        first_word: first word of each block, 0 if it has none.
        shape: what each block looks like (`UNKNOWN_SHAPE`, ...).
        reason: why each block is only possibly leaked (`ONE_PAST_THE_END`, ...), or `DEFINITE`.
        digest: digest of each block's contents; empty unless requested.
        object_type: address of the Python type of each block, 0 for blocks that are no Python
            object; empty unless Python objects were requested.
    """

    address: Addresses
    size: Addresses
    parent: NDArray[np.uint32]
    heads: Indexes
    words: Addresses
    first_word: Addresses
    shape: NDArray[np.uint8]
    reason: NDArray[np.uint8]
    digest: Addresses
    object_type: Addresses

    @property
    def type_word(self) -> Addresses:
        """The word that may give each block's type: the address of its vtable or Python type."""
        if not len(self.object_type):
            return self.first_word
        import numpy as np

        return np.where(self.object_type != 0, self.object_type, self.first_word)

    def __repr__(self) -> str:
        return f"<Leaks: {len(self.address)} blocks, {len(self.heads)} of them direct>"

    @classmethod
    def none(cls) -> Leaks:
        """Return no leaks."""
        import numpy as np

        wide, narrow = np.empty(0, np.uint64), np.empty(0, np.uint8)
        return cls(
            address=wide,
            size=wide,
            parent=wide.astype(np.uint32),
            heads=wide.astype(np.int64),
            words=wide.reshape(0, 0),
            first_word=wide,
            shape=narrow,
            reason=narrow,
            digest=wide,
            object_type=wide,
        )


class Kinds(NamedTuple):
    """Live blocks that are alike, in columns: equal in size, arena, shape and kind of words.

    Attributes:
        count, bytes, size: number of blocks, usable bytes of all of them, and of each one.
        example: address of one of them.
        arena: where they were allocated, 0 for the main arena.
        shape: what they look like (`UNKNOWN_SHAPE`, ...).
        words: leading words of the examples, one row each.
        object_type: addresses of their Python types, 0 for what is no Python object; empty unless
            Python objects were requested.
    """

    count: Addresses  # type: ignore[assignment]  # hides what tuples have
    bytes: Addresses
    size: Addresses
    example: Addresses
    arena: NDArray[np.uint32]
    shape: NDArray[np.uint32]
    words: Addresses
    object_type: Addresses

    @classmethod
    def none(cls) -> Kinds:
        """Return the kinds of a heap without live blocks: none."""
        import numpy as np

        wide = np.empty(0, np.uint64)
        narrow = wide.astype(np.uint32)
        return cls(wide, wide, wide, wide, narrow, narrow, wide.reshape(0, 0), wide)

    def __repr__(self) -> str:
        return f"<Kinds: {len(self.size)} of {int(self.count.sum())} blocks>"
