"""The data of one scan: immutable, without logic.

Every scan loads these classes, so they are named tuples, which are created faster than dataclasses.
numpy takes longer to load than a scan: until there are columns, only its types are used.
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
"""Another bit: anonymous memory directly behind a module that is not the module's .bss."""

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
    LOST_BEFORE = 13
    MAY_BE_FREE = 14


DEFINITE, ONE_PAST_THE_END, TAGGED, UNREADABLE_MEMORY, *_others = Reason
CHANGED, SIGNAL_STACK, MANGLED, HELD_BY_KERNEL, RELATIVE, UNALIGNED, *_others = _others
NUMBER, STALE_WORD, ALLOCATOR_BUSY, LOST_BEFORE, MAY_BE_FREE = _others

REASONS = frozenset(Reason) - {DEFINITE}
"""Values of `Leaks.reason` for leaks that are only possible."""

UNKNOWN_SHAPE, TREE_NODE, LIST_NODE, CHAIN_NODE, POINTER_ARRAY, VECTOR_BODY, TEXT, ZEROS = range(8)
STRING = 8
"""`Leaks.shape` and `Kinds.shape`; a `STRING` is a text that fills its block."""


class BlockState(enum.IntEnum):
    """State of the memory in question."""

    NO_HEAP = 0
    REACHABLE = 1
    LEAKED = 2
    NOT_LIVE = 3


class Holder(enum.IntEnum):
    """Where a reference is stored; `ROOT_WORD` is a register or a word held by the kernel."""

    ROOT_MEMORY = 1
    ROOT_WORD = 2
    REACHABLE_BLOCK = 3
    LEAKED_BLOCK = 4


NO_HEAP, REACHABLE, LEAKED, NOT_LIVE = BlockState
ROOT_MEMORY, ROOT_WORD, REACHABLE_BLOCK, LEAKED_BLOCK = Holder

PROGRAM_BREAK, THREAD_HEAP, MAPPED, POOLS, PROGRAM_POOL = range(1, 6)
"""`Regions.kind`; `POOLS` are those of Python's own allocator."""


class Target(NamedTuple):
    """The process that was scanned. `started` is when the scan began, in ns since the epoch."""

    pid: int
    threads: int
    started: int
    name: str
    exe: str
    command: tuple[str, ...]


class Host(NamedTuple):
    """The machine that the process ran on; `boot_id` changes with each boot."""

    name: str
    boot_id: str


class Mapping(NamedTuple):
    """One line of /proc/PID/maps: [start, end) in memory, `offset` in bytes into the file."""

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
    """The state of one thread of the target when it was stopped."""

    tid: int
    stack_pointer: int
    program_counter: int
    thread_pointer: int
    name: str


class Snapshot(NamedTuple):
    """How memory was captured. `phases` are pairs (name, nanoseconds) in order."""

    method: str
    reason: str
    pause_ns: int
    attempts: int
    drain_runs: int
    phases: tuple[tuple[str, int], ...]


class Heap(NamedTuple):
    """One allocator of the target, and how much it has handed out (usable bytes)."""

    allocator: str
    allocations: int
    bytes: int
    arenas: int
    regions: int


class Collectible(NamedTuple):
    """Blocks of Python objects that are unreachable, but that Python's collector will free."""

    allocations: int
    bytes: int


class Block(NamedTuple):
    """The block in question; `size` in usable bytes."""

    asked: int
    start: int
    size: int
    state: BlockState
    arena: int


class Reference(NamedTuple):
    """A word that points into a block, and where it is.

    Attributes:
        slot: address of the word; 0 for a register or a word that the kernel holds.
        value: its value.
        holder: where it is stored.
        index: position of a register or kernel word, see `WordOwner`.
        block, size: the block that contains the word, if any.
    """

    slot: int
    value: int
    holder: Holder
    index: int  # type: ignore[assignment]  # hides what tuples have
    block: int
    size: int


class Sighting(NamedTuple):
    """A word that refers to a block without being a pointer to it.

    Attributes:
        form: how it refers to the block, as in `Leaks.reason`.
        about: the block that it refers to: the one in question, or one that owns it.
        word: where it is, and its value.
    """

    form: Reason
    about: int
    word: Reference


class WordOwner(NamedTuple):
    """The thread that words [first, first + count) belong to; `tid` is 0 for the kernel's words."""

    first: int
    count: int  # type: ignore[assignment]  # hides what tuples have
    tid: int


class Warning(NamedTuple):
    """A warning for the reader. Codes that begin with `incomplete` affect the verdict."""

    code: str
    message: str


NOT_RECORDED = "not-recorded"
"""Code of the warning about leaks left out because their allocation was not recorded."""

UNRECORDED = "incomplete-records"
"""Code of the warning about leaks that are new, though nothing recorded most of them."""


class Totals(NamedTuple):
    """Totals in the final record of a stream (usable bytes)."""

    allocations: int
    bytes: int
    leaked: int
    leaked_bytes: int
    direct: int
    direct_bytes: int


class Name(NamedTuple):
    """The name of an address: path of its module, a symbol, and the offset from it in bytes."""

    module: str
    symbol: str
    offset: int


class Confirmation(NamedTuple):
    """Results of repeated scans: (blocks, bytes) that were unreferenced in only some of them.

    The last scan did not find `vanished` blocks. It found `recent` ones, but an earlier scan did
    not.
    """

    every_ns: int
    pauses_ns: tuple[int, ...]
    vanished: tuple[int, int]
    recent: tuple[int, int]


class Moments(NamedTuple):
    """What came of joining scans of different moments, as (blocks, bytes).

    Words hide `hidden` ones from the last scan, but an earlier scan found them lost. An earlier
    scan was wrong about `withdrawn` ones. `rested`: nothing in the process ran after the last scan.
    """

    every_ns: int
    pauses_ns: tuple[int, ...]
    hidden: tuple[int, int]
    withdrawn: tuple[int, int]
    rested: bool


class Findings(NamedTuple):
    """What the analysis found out about a recording, to be saved with it.

    Attributes:
        names: address -> name.
        warnings: what could not be found out, and the consequences.
        phases: (name, nanoseconds) of the steps of the analysis.
    """

    names: ReadOnlyDict[int, Name]
    warnings: tuple[Warning, ...]
    phases: tuple[tuple[str, int], ...]


class Recording(NamedTuple):
    """A decoded stream: everything that a report needs.

    Attributes:
        region_rows: `regions`, not yet decoded.
        some_leaks: `leaks` if there are any.
        types: address of a vtable -> mangled name of its C++ type.
        names: address -> name; None if the addresses were never named.
        contents: position of a leak -> more of its bytes than `Leaks.words` has.
        kinds: kinds of live blocks, if they were requested.
        block: the block in question, if there was one.
        references: words that point to that block.
        chain: the shortest path from a root to it.
        sightings: words that refer to the block, or to its owner, in another form.
        word_owners: the meaning of `Reference.index`.
        confirmation: the result of repeated scans; None after a single scan.
        moments: the result of a thorough scan; None for any other.
        absent: (start, end) of large ranges that were never written to; None if the stream does
            not say.
        withheld: contents of blocks were not requested: a word that is no address stands for any
            other word of its class.
        machine: the processor, by its number in ELF files; see `architectures.py`.
        page_size: of the machine, in bytes.
        word: size of the program's words, in bytes.
        recorder: how allocations are being recorded; None if they are not.
        origins, kind_origins: who allocated leaks, or kinds of live blocks.
        stacks: the stacks that origins refer to.
        recorded_threads, closed_modules, python_functions: what origins and stacks refer to by
            number.
        recorded_mappings: mappings that were recorded; None if they are not being recorded.
        frames: the functions that the calls in stacks are in, once they are known.
        host: where the process ran; None if the stream does not say.
        python_types: address -> name, for the types of Python objects that are reported.
        collectible: objects that Python's collector will free; None unless Python objects were
            requested.
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
    moments: Moments | None = None
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
        """Whether this is a search for leaks, not a question about the heap or one block."""
        return self.kinds is None and self.block is None

    def completed(self, found: Findings) -> Recording:
        """Return the recording that the stream decodes to once the findings are saved in it."""
        phases = self.snapshot.phases + found.phases
        return self._replace(
            names=found.names,
            warnings=self.warnings + found.warnings,
            snapshot=self.snapshot._replace(phases=phases),
        )

    def __repr__(self) -> str:  # short: a recording may hold megabytes
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
    """Progress of a phase; `total` is 0 if it is unknown."""

    phase: str
    done: int
    total: int
