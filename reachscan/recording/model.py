"""What a scan consists of. Frozen data without logic; imports nothing but what is part of it.

Named tuples, for dataclasses take long to make: all of this is read before every scan. Of numpy,
which takes longer than a scan to load, only the types are used until there are columns.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping as ReadOnlyDict
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reachscan.recording.arrays import Addresses as Addresses
from reachscan.recording.arrays import Flags as Flags
from reachscan.recording.arrays import Indexes as Indexes
from reachscan.recording.blocks import Kinds as Kinds
from reachscan.recording.blocks import Leaks as Leaks
from reachscan.recording.blocks import Regions as Regions

if TYPE_CHECKING:
    from reachscan.recording import origins as recorded

READ, WRITE, EXECUTE, SHARED = 1, 2, 4, 8
"""Bits of `Mapping.permissions`."""

APART = 16
"""Another bit: anonymous memory right behind a module that is not its .bss."""

DIRECT = 0xFFFFFFFF
"""`Leaks.parent` of a direct leak."""


class Reason(enum.IntEnum):
    """Why a leak is only possible, see `Leaks.reason`; `DEFINITE` is no reason for doubt."""

    DEFINITE = 0
    ONE_PAST_THE_END = 1
    TAGGED = 2
    UNREADABLE_MEMORY = 3
    CHANGED = 4
    SIGNAL_STACK = 5
    MANGLED = 6
    HELD_BY_KERNEL = 7
    RELATIVE = 8
    UNALIGNED = 9
    NUMBER = 10
    STALE_WORD = 11
    ALLOCATOR_BUSY = 12


DEFINITE, ONE_PAST_THE_END, TAGGED, UNREADABLE_MEMORY, *_others = Reason
CHANGED, SIGNAL_STACK, MANGLED, HELD_BY_KERNEL, RELATIVE, UNALIGNED, *_others = _others
NUMBER, STALE_WORD, ALLOCATOR_BUSY = _others

REASONS = frozenset(Reason) - {DEFINITE}
"""What `Leaks.reason` may be where a leak is only possible."""

UNKNOWN_SHAPE, TREE_NODE, LIST_NODE, CHAIN_NODE, POINTER_ARRAY, VECTOR_BODY, TEXT, ZEROS = range(8)
STRING = 8
"""`Leaks.shape` and `Kinds.shape`; a `STRING` is a text that is as long as its block allows."""


class BlockState(enum.IntEnum):
    """What the memory is that was asked about."""

    NO_HEAP = 0
    REACHABLE = 1
    LEAKED = 2
    NOT_LIVE = 3


class Holder(enum.IntEnum):
    """What a reference is part of; `ROOT_WORD` is a register or a word that the kernel holds."""

    ROOT_MEMORY = 1
    ROOT_WORD = 2
    REACHABLE_BLOCK = 3
    LEAKED_BLOCK = 4


NO_HEAP, REACHABLE, LEAKED, NOT_LIVE = BlockState
ROOT_MEMORY, ROOT_WORD, REACHABLE_BLOCK, LEAKED_BLOCK = Holder

PROGRAM_BREAK, THREAD_HEAP, MAPPED, POOLS, PROGRAM_POOL = range(1, 6)
"""`Regions.kind`; `POOLS` are those of Python's own allocator."""


class Target(NamedTuple):
    """The process that was scanned. `started` is the begin of the scan, ns since the epoch."""

    pid: int
    threads: int
    started: int
    name: str
    exe: str
    command: tuple[str, ...]


class Host(NamedTuple):
    """The machine that the process ran on; a `boot_id` is another one after each boot."""

    name: str
    boot_id: str


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


class Collectible(NamedTuple):
    """Blocks of Python objects that nothing reaches, but that its collector will free."""

    allocations: int
    bytes: int


class Block(NamedTuple):
    """The block that was asked about; `size` in usable bytes."""

    asked: int
    start: int
    size: int
    state: BlockState
    arena: int


class Reference(NamedTuple):
    """A word that points into a block, and where it is.

    Attributes:
        slot: address of the word; 0 for a register or a word that the kernel holds.
        value: what it holds.
        holder: what it is part of.
        index: position of a register or kernel word, see `WordOwner`.
        block, size: the block that the word is part of, if it is in one.
    """

    slot: int
    value: int
    holder: Holder
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

    form: Reason
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


NOT_RECORDED = "not-recorded"
"""Code of the warning that leaks were left out whose allocation was not recorded."""


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
        word: of the program, bytes.
        recorder: how allocations are being recorded, None if they are not.
        origins, kind_origins: where leaks, or kinds of live blocks, come from.
        stacks: those that origins refer to.
        recorded_threads, closed_modules, python_functions: what they and stacks refer to, by its
            number.
        recorded_mappings: those that are recorded, None if none are to be.
        frames: what the calls in stacks are, once that is found out.
        host: where the process ran; None if the stream does not tell.
        python_types: address -> name of the types of Python objects among the leaks.
        collectible: what waits for Python's collector; None if nobody asked for Python objects.
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
    word: int = 8
    recorder: recorded.Recorder | None = None
    origins: recorded.Origins | None = None
    kind_origins: recorded.Origins | None = None
    stacks: recorded.Stacks | None = None
    recorded_threads: ReadOnlyDict[int, recorded.RecordedThread] = MappingProxyType({})
    closed_modules: ReadOnlyDict[int, recorded.ClosedModule] = MappingProxyType({})
    python_functions: ReadOnlyDict[int, recorded.PythonFunction] = MappingProxyType({})
    recorded_mappings: tuple[recorded.RecordedMapping, ...] | None = None
    frames: recorded.Frames = MappingProxyType({})
    host: Host | None = None
    python_types: ReadOnlyDict[int, str] = MappingProxyType({})
    collectible: Collectible | None = None

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

    def __repr__(self) -> str:  # small, as all of them here: there may be megabytes
        return f"<Recording of {self.target.name!r} (pid {self.target.pid}): {self.totals}>"

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
