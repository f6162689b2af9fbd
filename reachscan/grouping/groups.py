"""The results of folding: groups of blocks that are alike. Frozen data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reachscan.recording import model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reachscan.grouping.join import Joined


class Example(NamedTuple):
    """One block that stands for its group; `contents` are its first bytes, as many as are known."""

    address: int
    size: int
    contents: bytes


class SizeCount(NamedTuple):
    """How many blocks have a size, and what they add up to; `size` is None for all other sizes."""

    size: int | None
    allocations: int
    bytes: int


class SizeClass(NamedTuple):
    """How many blocks have one of the sizes `smallest`, ..., `largest`, and what they add up to."""

    smallest: int
    largest: int
    allocations: int
    bytes: int


class Branch(NamedTuple):
    """Blocks of one kind below a group (usable bytes), and what hangs below those.

    Attributes:
        name: what they are; None for several kinds that are not told apart.
        kinds: how many kinds that are; 1 with a name.
        smallest, largest: sizes among them; None without a name.
        below: largest first, together with what hangs below each.
    """

    name: str | None
    kinds: int
    allocations: int
    bytes: int
    smallest: int | None
    largest: int | None
    below: tuple[Branch, ...]


class Group(NamedTuple):
    """Direct leaks that are alike, and what hangs below them; or live blocks (usable bytes).

    Attributes:
        size: of the example.
        key: what the group is called in every scan of the program: the stack that allocated it if
            that is known, or its type, or else its size and what its leading words point to. Groups
            that differ in no more than offsets share it.
        reason: why they are only possibly leaked.
        sizes: of the direct leaks, most frequent first.
        tree: what hangs below them.
        is_object: whether they are objects of Python, and `type` is one of its types.
        shape, candidates: what most blocks look like, and structs that they could be, the likeliest
            first, if they have no type.
    """

    allocations: int
    bytes: int
    indirect_allocations: int
    indirect_bytes: int
    size: int
    type: str | None
    shape: str | None
    signature: str
    key: str
    reason: model.Reason
    example: Example
    sizes: tuple[SizeCount, ...]
    tree: tuple[Branch, ...]
    candidates: tuple[str, ...] = ()
    origin: Origin | None = None
    is_object: bool = False

    def __repr__(self) -> str:
        """Return one line: the tree may have hundreds."""
        return (
            f"<Group of {self.allocations} blocks, {self.bytes} bytes: "
            f"{self.type or self.shape or self.signature}>"
        )


class Thread(NamedTuple):
    """How many blocks of a group a thread has allocated; `name` is the one that it had then."""

    name: str
    tid: int
    allocations: int


class Estimate(NamedTuple):
    """How many blocks there are, and their bytes, if only some were recorded: a sample of them."""

    allocations: int
    bytes: int


class Origin(NamedTuple):
    """Where the blocks of a group come from.

    Attributes:
        stack: its number in the recording.
        threads: that allocated them, those with most blocks first.
        oldest_us, newest_us: how long ago the first and the last of them were allocated; None if
            nobody tells.
        estimated: what they stand for, if allocations are sampled.
    """

    stack: int
    threads: tuple[Thread, ...]
    oldest_us: int | None = None
    newest_us: int | None = None
    estimated: Estimate | None = None


class Folding(NamedTuple):
    """All groups in columns, largest first, those that are only possibly leaked last.

    Attributes:
        joined: what was folded.
        group_of_row: index of the group that each row of it belongs to.
        allocations, bytes, indirect_allocations, indirect_bytes: of each group its direct leaks (or
            live blocks), and what hangs below them.
        example: of each group the row of the block that stands for it, and shares with all others
            what tells groups apart.
        type: index of the C++ type of each group, -1 if it has none, or not all blocks have it.
        shape: what most blocks of each group look like (`model.UNKNOWN_SHAPE`, ...).
        signature: of each group a code per leading word, `joined.labels` says what for.
    """

    joined: Joined
    group_of_row: NDArray[np.int32]
    allocations: model.Indexes
    bytes: model.Indexes
    indirect_allocations: model.Indexes
    indirect_bytes: model.Indexes
    example: model.Indexes
    type: model.Indexes
    shape: model.Indexes
    signature: model.Indexes

    def __repr__(self) -> str:
        """Return one line: there may be millions of rows."""
        return f"<Folding of {len(self.group_of_row)} rows into {len(self.example)} groups>"

    @property
    def size(self) -> model.Indexes:
        """Usable bytes of the block that stands for each group."""
        return self.joined.rows.size[self.example].astype("i8")

    @property
    def stack(self) -> model.Indexes:
        """Number of the stack that allocated each group, `NO_STACK` if it is not known."""
        return self.joined.stack[self.example]

    @property
    def reason(self) -> NDArray[np.integer[Any]]:
        """Why each group is only possibly leaked, see `model.Leaks.reason`."""
        return self.joined.rows.reason[self.example]

    @property
    def group_of_leak(self) -> NDArray[np.int32]:
        """Index of the group that each leak belongs to, in stream order."""
        # A head and what hangs below it are neighbours in the stream.
        return self.group_of_row.repeat(self.joined.rows.below + 1)

    def reordered(self, order: model.Indexes) -> Folding:
        """Return the same groups in another order: `order` are their present positions."""
        rank = order.argsort().astype(self.group_of_row.dtype)
        whole = ("joined", "group_of_row")
        columns = {name: getattr(self, name)[order] for name in self._fields if name not in whole}
        return self._replace(group_of_row=rank[self.group_of_row], **columns)
