"""The origins of blocks as recorded: which thread allocated them, when, and with which stack.

Most processes are not recorded, so a scan loads this module only if it has to.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    from reachscan.recording.arrays import Addresses, Flags, Indexes

NOT_RECORDED = 0xFFFFFFFF
"""`Origins.thread` of a block whose allocation was not recorded."""

NO_STACK = -1
"""`Origins.stack` of a block that is not recorded, or whose stack is empty."""

LATEST_MS = 1 << 43
"""No process runs for so long: larger times mean a damaged stream."""

DEEPEST = 512
"""Maximum number of frames of machine code in a stack, and of Python frames."""

PYTHON = 1 << 63
"""Flag of a `Call.pc` that is no address: the lower bits are a Python function and a line."""

WAYS_IN = {1: "run", 2: "attach", 3: "library"}
"""`Recorder.way_in`."""

STACKS = {0: "auto", 1: "frame-pointers", 2: "tables", 3: "instrumented"}
"""`Recorder.stacks`."""

STOPPED = {1: "full", 2: "stop-at", 3: "detached"}
"""`Recorder.stopped`; 0 is none."""


class Recorder(NamedTuple):
    """How the process's allocations are being recorded; times in ms since the recording began.

    Attributes:
        start, bytes: address and size of its tables.
        started: when the recording began, in ns since the epoch.
        now_ms: time of the scan.
        stopped, stopped_after_ms: why and when it stopped recording new allocations.
        sample: mean distance of samples in bytes; 0 if every allocation is recorded.
        stop_at: bytes after which it stops; 0 for never.
        records, lost: number of blocks in its tables, and of blocks that found no room there.
        sizes: first and last of each range of requested sizes to record; empty for all sizes.
    """

    start: int
    bytes: int
    way_in: int
    stacks: int
    depth: int
    stopped: int
    stopped_after_ms: int
    started: int
    now_ms: int
    min_size: int
    sample: int
    stop_at: int
    modules_filtered: int
    threads_filtered: int
    records: int
    lost: int
    sizes: tuple[tuple[int, int], ...]

    def age_us(self, time_ms: int) -> int:
        """Return the time that had passed at the scan, in µs; never negative."""
        return 1000 * max(0, self.now_ms - time_ms)


def doubts(recorder: Recorder) -> list[str]:
    """Return warnings about a recorder that missed allocations."""
    found = []
    if recorder.lost:
        found.append(
            f"the recorder had no room for {recorder.lost} blocks, which have no stack: give its "
            "tables more with --memory, or record less with --min-size or --sample"
        )
    if recorder.stopped:
        reason = STOPPED.get(recorder.stopped, "unknown")
        found.append(
            f"nothing new is recorded since {recorder.stopped_after_ms / 1000:.1f} s after the "
            f"recording began ({reason}): blocks that were allocated later have no stack"
        )
    return found


def doubt_of_python(version: int) -> str:
    """Return the warning that stacks name no Python functions."""
    name = f"Python {version >> 8}.{version & 0xFF}" if version else "this Python"
    return (
        f"stacks name no Python functions: the recorder does not know how {name} keeps its frames; "
        "it knows those of releases 3.9 to 3.14 that are not free-threaded"
    )


class Origins(NamedTuple):
    """Who allocated blocks, in columns: one row per leak, or per kind of live blocks.

    Attributes:
        stack: its number (`Stacks`), or `NO_STACK`.
        thread: number of the thread, or `NOT_RECORDED`.
        oldest_ms, newest_ms: when the first and the last of the blocks were allocated.
        requested: bytes that the program requested for each of them.
    """

    stack: Indexes
    thread: NDArray[np.uint32]
    oldest_ms: Addresses
    newest_ms: Addresses
    requested: Addresses

    @property
    def recorded(self) -> Flags:
        """Which blocks' allocations were recorded."""
        found: Flags = self.thread != NOT_RECORDED
        return found

    def some(self, which: Indexes) -> Origins:
        """Return the rows of some leaks or kinds."""
        return Origins._make(column[which] for column in self)


class RecordedThread(NamedTuple):
    """A thread, and the name that it had."""

    tid: int
    name: str


class Mapped(enum.IntEnum):
    """How a program got a mapping."""

    MMAP = 1
    STACK = 2
    DETACHED_STACK = 3


class RecordedMapping(NamedTuple):
    """A mapping that the program created and has not unmapped.

    Attributes:
        start, end: its addresses; for a stack, a byte in the thread's descriptor.
        stack, thread, time_ms: as in `Origins`.
    """

    start: int
    end: int
    kind: Mapped
    stack: int
    thread: int
    time_ms: int


class ClosedModule(NamedTuple):
    """A library that is no longer loaded; `bias` is its load address."""

    bias: int
    path: str
    build_id: bytes


class PythonFunction(NamedTuple):
    """A Python function and its file, both as Python names them."""

    name: str
    file: str


class Call(NamedTuple):
    """A return address; `module` is the number of the closed module that contains it, or 0."""

    pc: int
    module: int

    @property
    def is_python(self) -> bool:
        """Whether it stands for a line of a Python function, which has no address."""
        return self.pc >= PYTHON


class Frame(NamedTuple):
    """One function in a stack. Unknown attributes are None.

    Attributes:
        pc: the return address. Name and line belong to the byte before it, which is part of the
            call. 0 for a Python function.
        module, build_id: the file that the code is mapped from, and its id in hexadecimal digits.
        offset: offset of `pc` in that file.
        function, function_offset: name of the function, and the offset of `pc` from its start.
        file, line: source file and line.
        inlined: the function was inlined into that of the next frame, which has the same `pc`.
    """

    pc: int
    module: str | None = None
    build_id: str | None = None
    offset: int | None = None
    function: str | None = None
    function_offset: int | None = None
    file: str | None = None
    line: int | None = None
    inlined: bool = False

    @property
    def label(self) -> str:
        """The function's name, or else the address of its code."""
        if self.function:
            return self.function
        if self.module:
            return f"{self.module.rpartition('/')[2]}+{self.offset or 0:#x}"
        return f"{self.pc:#x}"


Frames: TypeAlias = "Mapping[Call, tuple[Frame, ...]]"
"""Call -> its frames, the innermost first."""


def call_before(pc: int) -> int:
    """Return an address within the call that returns to `pc`; `pc` may be in another function."""
    return max(pc - 1, 0)


class Stacks(NamedTuple):
    """Stacks as a tree: an entry is the innermost call of a stack, its ancestors are the callers.

    Attributes:
        parent: index of the caller, `NO_STACK` for an outermost call. Callers come first.
        pc, module: the call of each entry, see `Call`. Entries are distinct.
    """

    parent: Indexes
    pc: Addresses
    module: NDArray[np.uint32]

    def calls(self, stack: int) -> tuple[Call, ...]:
        """Return the calls of a stack, the innermost first.

        Python functions replace the interpreter's own functions that evaluate them.
        """
        found: list[Call] = []
        is_behind_python = False
        while stack != NO_STACK:
            call = Call(int(self.pc[stack]), int(self.module[stack]))
            if call.is_python or not is_behind_python:
                found.append(call)
            is_behind_python = call.is_python
            stack = int(self.parent[stack])
        return tuple(found)

    def calls_to_name(self) -> list[int]:
        """Return the addresses of all calls in modules that are still loaded."""
        calls = self.all_calls()
        return [call_before(c.pc) for c in calls if not c.module and not c.is_python]

    def all_calls(self) -> list[Call]:
        """Return all distinct calls."""
        return sorted({*map(Call, self.pc.tolist(), self.module.tolist())})
