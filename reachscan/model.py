"""What a scan consists of. Frozen data without logic; imports nothing of this package."""

from __future__ import annotations

from collections.abc import Mapping as ReadOnlyDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.uint64]
Indexes = NDArray[np.int64]
Flags = NDArray[np.bool_]

READ, WRITE, EXECUTE, SHARED = 1, 2, 4, 8
"""Bits of `Mapping.permissions`."""

DIRECT = 0xFFFFFFFF
"""`Leaks.parent` of a direct leak."""

DEFINITE, ONE_PAST_THE_END, TAGGED, UNREADABLE_MEMORY, CHANGED, SIGNAL_STACK, MANGLED = range(7)
"""`Leaks.reason`: `DEFINITE` is no reason for doubt."""

UNKNOWN_SHAPE, TREE_NODE, LIST_NODE, CHAIN_NODE, POINTER_ARRAY, VECTOR_BODY, TEXT, ZEROS = range(8)
"""`Leaks.shape` and `Kinds.shape`."""

NO_HEAP, REACHABLE, LEAKED, NOT_LIVE = range(4)
"""`Block.state`."""

ROOT_MEMORY, ROOT_WORD, REACHABLE_BLOCK, LEAKED_BLOCK = range(1, 5)
"""`Reference.holder`."""


@dataclass(frozen=True, slots=True)
class Target:
    """The process that was scanned. `started` is the begin of the scan, ns since the epoch."""

    pid: int
    threads: int
    started: int
    name: str
    exe: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps; [start, end) in memory, `offset` bytes into the file."""

    start: int
    end: int
    offset: int
    inode: int
    permissions: int
    path: str


@dataclass(frozen=True, slots=True)
class Module:
    """A loaded ELF file; `build_id` is raw bytes, empty if it has none."""

    base: int
    path: str
    build_id: bytes


@dataclass(frozen=True, slots=True)
class Thread:
    """Where one thread of the target stood when it was stopped."""

    tid: int
    stack_pointer: int
    program_counter: int
    thread_pointer: int
    name: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How memory was captured. `phases` are (name, nanoseconds) in order."""

    method: str
    reason: str
    pause_ns: int
    attempts: int
    drain_runs: int
    phases: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Heap:
    """One allocator of the target and what it has handed out (usable bytes)."""

    allocator: str
    allocations: int
    bytes: int
    arenas: int
    regions: int


@dataclass(frozen=True, slots=True)
class Regions:
    """Address ranges [start, end) that an allocator carves blocks from, in columns."""

    start: Addresses
    end: Addresses
    kind: NDArray[np.uint32]
    arena: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Leaks:
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
        digest: of the contents of each block; empty if nobody asked for it.
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


@dataclass(frozen=True, slots=True)
class Kinds:
    """Live blocks that are alike, in columns: equal in size, arena, shape and kind of words.

    Attributes:
        count, bytes, size: how many there are, their usable bytes together, and of each one.
        example: address of one of them.
        arena: where they were allocated, 0 for the main arena.
        shape: what they look like (`UNKNOWN_SHAPE`, ...).
        words: leading words of the examples, one row each.
    """

    count: Addresses
    bytes: Addresses
    size: Addresses
    example: Addresses
    arena: NDArray[np.uint32]
    shape: NDArray[np.uint32]
    words: Addresses


@dataclass(frozen=True, slots=True)
class Block:
    """The block that was asked about; `state` is `NO_HEAP`, ..., `size` usable bytes."""

    asked: int
    start: int
    size: int
    state: int
    arena: int


@dataclass(frozen=True, slots=True)
class Reference:
    """A word that points into a block, and where it is.

    Attributes:
        slot: address of the word; 0 for a register or a word that the kernel holds.
        value: what it holds.
        holder: `ROOT_MEMORY`, ....
        index: position of a register or kernel word, see `WordOwner`.
        block, size: the block that the word is part of, if it is in one.
    """

    slot: int
    value: int
    holder: int
    index: int
    block: int
    size: int


@dataclass(frozen=True, slots=True)
class WordOwner:
    """Whose registers words [first, first + count) are; `tid` 0 if the kernel holds them."""

    first: int
    count: int
    tid: int


@dataclass(frozen=True, slots=True)
class Warning:
    """Something the reader of a report must know. Codes that begin with `incomplete` matter."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Totals:
    """What the stream adds up to, as its final record states it (usable bytes)."""

    allocations: int
    bytes: int
    leaked: int
    leaked_bytes: int
    direct: int
    direct_bytes: int


@dataclass(frozen=True, slots=True)
class Name:
    """What an address inside a module is called: path of the module, symbol, bytes into it."""

    module: str
    symbol: str
    offset: int


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What repeated scans say; (blocks, bytes) that were unreferenced in some of them only.

    `vanished` ones were gone in the last scan, `recent` ones are there but were not in all before.
    """

    every_ns: int
    pauses_ns: tuple[int, ...]
    vanished: tuple[int, int]
    recent: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recording:
    """One decoded stream: everything that a report needs.

    Attributes:
        types: address of a vtable -> mangled name of its C++ type.
        names: address -> name, None if the stream was never named.
        contents: position of a leak -> more of its bytes than its words show.
        kinds: of live blocks, if the scan was for those.
        block: the block that the scan was asked about, if it was.
        references: what points to that block.
        chain: the shortest way from a root to it.
        word_owners: what `Reference.index` means.
        confirmation: what came of scanning several times, None if it was once.
    """

    target: Target
    mappings: tuple[Mapping, ...]
    modules: tuple[Module, ...]
    threads: tuple[Thread, ...]
    snapshot: Snapshot
    heaps: tuple[Heap, ...]
    regions: Regions
    leaks: Leaks
    types: ReadOnlyDict[int, str]
    warnings: tuple[Warning, ...]
    names: ReadOnlyDict[int, Name] | None
    contents: ReadOnlyDict[int, bytes]
    totals: Totals
    kinds: Kinds | None = None
    block: Block | None = None
    references: tuple[Reference, ...] = ()
    chain: tuple[Reference, ...] = ()
    word_owners: tuple[WordOwner, ...] = ()
    confirmation: Confirmation | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a phase has come; `total` is 0 where it is not known."""

    phase: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Example:
    """One block that stands for its group; `contents` are its first bytes, as many as are known."""

    address: int
    size: int
    contents: bytes


@dataclass(frozen=True, slots=True)
class SizeCount:
    """How many blocks have a size, and what they add up to; `size` is None for all other sizes."""

    size: int | None
    allocations: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SizeClass:
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


@dataclass(frozen=True, slots=True)
class Group:
    """Direct leaks that are alike, and what hangs below them; or live blocks (usable bytes).

    Attributes:
        size: of the example.
        key: what the group is called in every scan of the program: its type, or else its size and
            what its leading words point to. Groups that differ in no more than offsets share it.
        reason: why they are only possibly leaked (`ONE_PAST_THE_END`, ...), or `DEFINITE`.
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


@dataclass(frozen=True, slots=True)
class Folding:
    """All groups in columns, largest first, those that are only possibly leaked last.

    Attributes:
        allocations, bytes, indirect_allocations, indirect_bytes: direct leaks of each group, and
            what hangs below them.
        example: position (among all leaks, or kinds) of the block that stands for the group.
        size: usable bytes of that block.
        type: index into `types`, which are readable names; -1 if the group has no C++ type.
        vtables, type_of_vtable: addresses, ascending, and the index into `types` of each.
        shape: what most blocks of the group look like (`UNKNOWN_SHAPE`, ...).
        reason: why each group is only possibly leaked (`ONE_PAST_THE_END`, ...), or `DEFINITE`.
        signature: one row per group, codes into `labels`, one per leading word.
        labels: what the codes of `signature` are called.
        group_of_row: index of the group that each direct leak, or kind, belongs to.
        group_of_leak: the same of each leak, in stream order.
    """

    allocations: Indexes
    bytes: Indexes
    indirect_allocations: Indexes
    indirect_bytes: Indexes
    example: Indexes
    size: Indexes
    type: Indexes
    types: tuple[str, ...]
    vtables: Addresses
    type_of_vtable: Indexes
    shape: Indexes
    reason: Indexes
    signature: Indexes
    labels: tuple[str, ...]
    group_of_row: NDArray[np.int32]
    group_of_leak: NDArray[np.int32]
