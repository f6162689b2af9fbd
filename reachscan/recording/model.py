"""What a scan consists of. Frozen data without logic; imports nothing of this package.

Named tuples, for dataclasses take long to make: all of this is read before every scan. Of numpy,
which takes longer than a scan to load, only the types are used until there are columns.
"""

from __future__ import annotations

from collections.abc import Mapping as ReadOnlyDict
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reachscan.recording import origins as recorded

Addresses: TypeAlias = "NDArray[np.uint64]"
Indexes: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"

READ, WRITE, EXECUTE, SHARED = 1, 2, 4, 8
"""Bits of `Mapping.permissions`."""

APART = 16
"""Another bit: anonymous memory right behind a module that is not its .bss."""

DIRECT = 0xFFFFFFFF
"""`Leaks.parent` of a direct leak."""

DEFINITE, ONE_PAST_THE_END, TAGGED, UNREADABLE_MEMORY = range(4)
CHANGED, SIGNAL_STACK, MANGLED, HELD_BY_KERNEL, RELATIVE, UNALIGNED, NUMBER = range(4, 11)
STALE_WORD, ALLOCATOR_BUSY = 11, 12
"""`Leaks.reason`: `DEFINITE` is no reason for doubt."""

REASONS = frozenset(range(ONE_PAST_THE_END, ALLOCATOR_BUSY + 1))
"""What `Leaks.reason` may be where a leak is only possible."""

UNKNOWN_SHAPE, TREE_NODE, LIST_NODE, CHAIN_NODE, POINTER_ARRAY, VECTOR_BODY, TEXT, ZEROS = range(8)
"""`Leaks.shape` and `Kinds.shape`."""

NO_HEAP, REACHABLE, LEAKED, NOT_LIVE = range(4)
"""`Block.state`."""

ROOT_MEMORY, ROOT_WORD, REACHABLE_BLOCK, LEAKED_BLOCK = range(1, 5)
"""`Reference.holder`."""

PROGRAM_BREAK, THREAD_HEAP, MAPPED = range(1, 4)
"""`Regions.kind`."""


class Target(NamedTuple):
    """The process that was scanned. `started` is the begin of the scan, ns since the epoch."""

    pid: int
    threads: int
    started: int
    name: str
    exe: str
    command: tuple[str, ...]


class Mapping(NamedTuple):
    """One line of /proc/PID/maps; [start, end) in memory, `offset` bytes into the file."""

    start: int
    end: int
    offset: int
    inode: int
    permissions: int
    path: str


class Module(NamedTuple):
    """A loaded ELF file; `build_id` is raw bytes, empty if it has none."""

    base: int
    path: str
    build_id: bytes


class Thread(NamedTuple):
    """Where one thread of the target stood when it was stopped."""

    tid: int
    stack_pointer: int
    program_counter: int
    thread_pointer: int
    name: str


class Snapshot(NamedTuple):
    """How memory was captured. `phases` are (name, nanoseconds) in order."""

    method: str
    reason: str
    pause_ns: int
    attempts: int
    drain_runs: int
    phases: tuple[tuple[str, int], ...]


class Heap(NamedTuple):
    """One allocator of the target and what it has handed out (usable bytes)."""

    allocator: str
    allocations: int
    bytes: int
    arenas: int
    regions: int


class Regions(NamedTuple):
    """Address ranges [start, end) that an allocator carves blocks from, in columns."""

    start: Addresses
    end: Addresses
    kind: NDArray[np.uint32]
    arena: NDArray[np.uint32]

    @classmethod
    def of(cls, rows: bytes) -> Regions:
        """Return the columns of rows as they lie in a regions record."""
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
        )


class Kinds(NamedTuple):
    """Live blocks that are alike, in columns: equal in size, arena, shape and kind of words.

    Attributes:
        count, bytes, size: how many there are, their usable bytes together, and of each one.
        example: address of one of them.
        arena: where they were allocated, 0 for the main arena.
        shape: what they look like (`UNKNOWN_SHAPE`, ...).
        words: leading words of the examples, one row each.
    """

    count: Addresses  # type: ignore[assignment]  # hides what tuples have
    bytes: Addresses
    size: Addresses
    example: Addresses
    arena: NDArray[np.uint32]
    shape: NDArray[np.uint32]
    words: Addresses

    @classmethod
    def none(cls) -> Kinds:
        """Return no kinds: there is no live block."""
        import numpy as np

        wide = np.empty(0, np.uint64)
        narrow = wide.astype(np.uint32)
        return cls(wide, wide, wide, wide, narrow, narrow, wide.reshape(0, 0))


class Block(NamedTuple):
    """The block that was asked about; `state` is `NO_HEAP`, ..., `size` usable bytes."""

    asked: int
    start: int
    size: int
    state: int
    arena: int


class Reference(NamedTuple):
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
    index: int  # type: ignore[assignment]  # hides what tuples have
    block: int
    size: int


class Sighting(NamedTuple):
    """A word that means a block, but is no pointer to it.

    Attributes:
        form: how it does, as `Leaks.reason`.
        about: the block that it means: the one that was asked about, or what owns that.
        word: where it is, and what it holds.
    """

    form: int
    about: int
    word: Reference


class WordOwner(NamedTuple):
    """Whose registers words [first, first + count) are; `tid` 0 if the kernel holds them."""

    first: int
    count: int  # type: ignore[assignment]  # hides what tuples have
    tid: int


class Warning(NamedTuple):
    """Something the reader of a report must know. Codes that begin with `incomplete` matter."""

    code: str
    message: str


class Totals(NamedTuple):
    """What the stream adds up to, as its final record states it (usable bytes)."""

    allocations: int
    bytes: int
    leaked: int
    leaked_bytes: int
    direct: int
    direct_bytes: int


class Name(NamedTuple):
    """What an address inside a module is called: path of the module, symbol, bytes into it."""

    module: str
    symbol: str
    offset: int


class Confirmation(NamedTuple):
    """What repeated scans say; (blocks, bytes) that were unreferenced in some of them only.

    `vanished` ones were gone in the last scan, `recent` ones are there but were not in all before.
    """

    every_ns: int
    pauses_ns: tuple[int, ...]
    vanished: tuple[int, int]
    recent: tuple[int, int]


class Findings(NamedTuple):
    """What was found out about a recording since, and is kept with it.

    Attributes:
        names: address -> name.
        warnings: what could not be found out, and what it means.
        phases: (name, nanoseconds) of what that took.
    """

    names: ReadOnlyDict[int, Name]
    warnings: tuple[Warning, ...]
    phases: tuple[tuple[str, int], ...]


class Recording(NamedTuple):
    """One decoded stream: everything that a report needs.

    Attributes:
        region_rows: `regions` as they came.
        some_leaks: `leaks` if there are any.
        types: address of a vtable -> mangled name of its C++ type.
        names: address -> name, None if the stream was never named.
        contents: position of a leak -> more of its bytes than its words show.
        kinds: of live blocks, if the scan was for those.
        block: the block that the scan was asked about, if it was.
        references: what points to that block.
        chain: the shortest way from a root to it.
        sightings: words in another form that mean the block, or what owns it.
        word_owners: what `Reference.index` means.
        confirmation: what came of scanning several times, None if it was once.
        absent: (start, end) of memory where nothing was ever written, long stretches only;
            None if the stream does not tell.
        withheld: nobody asked for contents of blocks: words that are no addresses stand for others
            of their class.
        machine: the processor, as ELF files number them; see `architectures.py`.
        page_size: of the machine, bytes.
        recorder: how allocations are being recorded, None if they are not.
        origins, kind_origins: where leaks, or kinds of live blocks, come from.
        stacks: those that origins refer to.
        recorded_threads, closed_modules: what they and stacks refer to, by its number.
        frames: what the calls in stacks are, once that is found out.
    """

    target: Target
    mappings: tuple[Mapping, ...]
    modules: tuple[Module, ...]
    threads: tuple[Thread, ...]
    snapshot: Snapshot
    heaps: tuple[Heap, ...]
    region_rows: bytes
    some_leaks: Leaks | None
    types: ReadOnlyDict[int, str]
    warnings: tuple[Warning, ...]
    names: ReadOnlyDict[int, Name] | None
    contents: ReadOnlyDict[int, bytes]
    totals: Totals
    kinds: Kinds | None = None
    block: Block | None = None
    references: tuple[Reference, ...] = ()
    chain: tuple[Reference, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    word_owners: tuple[WordOwner, ...] = ()
    confirmation: Confirmation | None = None
    absent: tuple[tuple[int, int], ...] | None = None
    withheld: bool = False
    machine: int = 0
    page_size: int = 0
    recorder: recorded.Recorder | None = None
    origins: recorded.Origins | None = None
    kind_origins: recorded.Origins | None = None
    stacks: recorded.Stacks | None = None
    recorded_threads: ReadOnlyDict[int, recorded.RecordedThread] = MappingProxyType({})
    closed_modules: ReadOnlyDict[int, recorded.ClosedModule] = MappingProxyType({})
    frames: recorded.Frames = MappingProxyType({})

    @property
    def is_about_leaks(self) -> bool:
        """Whether leaks were searched, and not the heap or one block looked at."""
        return self.kinds is None and self.block is None

    def completed(self, found: Findings) -> Recording:
        """Return what is decoded from the same stream once this is kept in it."""
        phases = self.snapshot.phases + found.phases
        return self._replace(
            names=found.names,
            warnings=self.warnings + found.warnings,
            snapshot=self.snapshot._replace(phases=phases),
        )

    @property
    def leaks(self) -> Leaks:
        """All leaked blocks."""
        return self.some_leaks or Leaks.none()

    @property
    def regions(self) -> Regions:
        """The address ranges that allocators carve blocks from."""
        return Regions.of(self.region_rows)


class Progress(NamedTuple):
    """How far a phase has come; `total` is 0 where it is not known."""

    phase: str
    done: int
    total: int
