"""The results of folding: groups of blocks that are alike. Immutable data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reachscan.recording import model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reachscan.grouping.join import Joined


class Example(NamedTuple):
    """The example of a group; `contents` are its known first bytes."""

    address: int
    size: int
    contents: bytes


class SizeCount(NamedTuple):
    """Number and total bytes of the blocks of one size; `size` is None for all other sizes."""

    size: int | None
    allocations: int
    bytes: int


class SizeClass(NamedTuple):
    """Number and total bytes of the blocks with sizes from `smallest` to `largest`."""

    smallest: int
    largest: int
    allocations: int
    bytes: int


class Branch(NamedTuple):
    """Blocks of one kind below a group (usable bytes), and the blocks below them.

    Attributes:
        name: name of the kind; None for several kinds together.
        kinds: number of kinds; 1 with a name.
        smallest, largest: range of sizes; None without a name.
        below: branches below, the largest first, each with everything below it.
    """

    name: str | None
    kinds: int
    allocations: int
    bytes: int
    smallest: int | None
    largest: int | None
    below: tuple[Branch, ...]


class Group(NamedTuple):
    """Direct leaks that are alike, and the blocks below them; or live blocks (usable bytes).

    Attributes:
        size: size of the example.
        key: identifies the group in every scan of the program: the stack that allocated it if that
            is known, or its type, or else its size and the targets of its leading words. Groups
            that differ only in offsets share it.
        reason: why they are only possibly leaked.
        sizes: sizes of the direct leaks, most frequent first.
        tree: the blocks below them.
        is_object: whether they are Python objects, and `type` is a Python type.
        shape, candidates: shape of most blocks, and structs that they could be, most likely first,
            if they have no type.
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
    """Number of a group's blocks that a thread allocated; `name` is the name it had then."""

    name: str
    tid: int
    allocations: int


class Estimate(NamedTuple):
    """Estimated number and bytes of blocks, if only a sample was recorded."""

    allocations: int
    bytes: int


class Origin(NamedTuple):
    """Who allocated the blocks of a group.

    Attributes:
        stack: its number in the recording.
        threads: the threads that allocated them, by number of blocks.
        oldest_us, newest_us: µs since the first and the last of them were allocated; None if
            unknown.
        estimated: what they represent, if allocations are sampled.
    """

    stack: int
    threads: tuple[Thread, ...]
    oldest_us: int | None = None
    newest_us: int | None = None
    estimated: Estimate | None = None


class Folding(NamedTuple):
    """All groups in columns, largest first, those that are only possibly leaked last.

    Attributes:
        joined: the blocks that were folded.
        group_of_row: index of each row's group.
        allocations, bytes, indirect_allocations, indirect_bytes: each group's direct leaks (or live
            blocks), and the blocks below them.
        example: row of each group's example, which agrees with all others in everything that
            distinguishes groups.
        type: index of the C++ type of each group, -1 if it has none, or not all blocks have it.
        shape: shape of most blocks of each group (`model.UNKNOWN_SHAPE`, ...).
        signature: each group's codes of its leading words; `joined.labels` names them.
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
        """Usable bytes of each group's example."""
        return self.joined.rows.size[self.example].astype("i8")

    @property
    def stack(self) -> model.Indexes:
        """Number of the stack that allocated each group, `NO_STACK` if unknown."""
        return self.joined.stack[self.example]

    @property
    def reason(self) -> NDArray[np.integer[Any]]:
        """Why each group is only possibly leaked, see `model.Leaks.reason`."""
        return self.joined.rows.reason[self.example]

    @property
    def group_of_leak(self) -> NDArray[np.int32]:
        """Index of the group that each leak belongs to, in stream order."""
        # A head and the blocks below it are adjacent in the stream.
        return self.group_of_row.repeat(self.joined.rows.below + 1)

    def reordered(self, order: model.Indexes) -> Folding:
        """Return the same groups in another order; `order` holds their current positions."""
        rank = order.argsort().astype(self.group_of_row.dtype)
        whole = ("joined", "group_of_row")
        columns = {name: getattr(self, name)[order] for name in self._fields if name not in whole}
        return self._replace(group_of_row=rank[self.group_of_row], **columns)
