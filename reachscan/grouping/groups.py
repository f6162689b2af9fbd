"""What folding makes of a recording: groups of blocks that are alike. Frozen data without logic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reachscan.recording import model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        key: what the group is called in every scan of the program: its type, or else its size and
            what its leading words point to. Groups that differ in no more than offsets share it.
        reason: why they are only possibly leaked, see `model.Leaks.reason`.
        sizes: of the direct leaks, most frequent first.
        tree: what hangs below them.
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
    reason: int
    example: Example
    sizes: tuple[SizeCount, ...]
    tree: tuple[Branch, ...]
    candidates: tuple[str, ...] = ()


class Folding(NamedTuple):
    """All groups in columns, largest first, those that are only possibly leaked last.

    Attributes:
        allocations, bytes, indirect_allocations, indirect_bytes: direct leaks of each group, and
            what hangs below them.
        example: position (among all leaks, or kinds) of the block that stands for the group.
        size: usable bytes of that block.
        type: index into `types`, which are readable names; -1 if the group has no C++ type.
        vtables, type_of_vtable: addresses, ascending, and the index into `types` of each.
        shape: what most blocks of the group look like (`model.UNKNOWN_SHAPE`, ...).
        reason: why each group is only possibly leaked, see `model.Leaks.reason`.
        signature: one row per group, codes into `labels`, one per leading word.
        labels: what the codes of `signature` are called.
        group_of_row: index of the group that each direct leak, or kind, belongs to.
        group_of_leak: the same of each leak, in stream order.
    """

    allocations: model.Indexes
    bytes: model.Indexes
    indirect_allocations: model.Indexes
    indirect_bytes: model.Indexes
    example: model.Indexes
    size: model.Indexes
    type: model.Indexes
    types: tuple[str, ...]
    vtables: model.Addresses
    type_of_vtable: model.Indexes
    shape: model.Indexes
    reason: model.Indexes
    signature: model.Indexes
    labels: tuple[str, ...]
    group_of_row: NDArray[np.int32]
    group_of_leak: NDArray[np.int32]
