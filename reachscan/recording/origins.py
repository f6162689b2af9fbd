"""Where blocks come from: who allocated them, when, and with which stack, as recorded.

Most processes are not recorded, and what scans every one of them does without this.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from reachscan.recording.arrays import Addresses, Flags, Indexes

NOT_RECORDED = 0xFFFFFFFF
"""`Origins.thread` of a block that nobody saw being allocated."""

NO_STACK = -1
"""`Origins.stack` of a block that is not recorded, or has no frame."""

LATEST_MS = 1 << 43
"""No process runs for so long: times from there on are damage."""

DEEPEST = 512
"""Frames of a stack at most: of machine code and of Python, as many of each."""

PYTHON = 1 << 63
"""Of a `Call.pc` that is no address: a number of a Python function and a line lie below it."""

WAYS_IN = {1: "run", 2: "attach", 3: "library"}
"""`Recorder.way_in`."""

STACKS = {0: "auto", 1: "frame-pointers", 2: "tables", 3: "instrumented"}
"""`Recorder.stacks`."""

STOPPED = {1: "full", 2: "stop-at", 3: "detached"}
"""`Recorder.stopped`; 0 is none."""


class Recorder(NamedTuple):
    """How allocations of the process are being recorded; times in ms since it began.

    Attributes:
        start, bytes: where it keeps its tables.
        started: when it began, ns since the epoch.
        now_ms: when the scan was.
        stopped, stopped_after_ms: why and when it ended to record what is new.
        sample: mean distance of samples in bytes, 0 if everything is recorded.
        stop_at: bytes after which it ends, 0 for never.
        records, lost: blocks that it recorded, and those that found no room.
        sizes: first and last of the requested sizes that are recorded; none for all.
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
        """Return how long before the scan a time was; what came after its begin is new."""
        return 1000 * max(0, self.now_ms - time_ms)


def doubts(recorder: Recorder) -> list[str]:
    """Return what the reader must know of a recorder that did not record all that it should."""
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
    """Return what the reader must know where no Python function is in the stacks."""
    name = f"Python {version >> 8}.{version & 0xFF}" if version else "this Python"
    return (
        f"stacks name no Python functions: the recorder does not know how {name} keeps its frames; "
        "it knows those of releases 3.9 to 3.14 that are not free-threaded"
    )


class Origins(NamedTuple):
    """Where blocks come from, in columns: a row for each leak, or kind of live blocks.

    Attributes:
        stack: its number (`Stacks`), or `NO_STACK`.
        thread: number of the thread, or `NOT_RECORDED`.
        oldest_ms, newest_ms: when the first and the last of the blocks were allocated.
        requested: bytes that each of them was asked for with.
    """

    stack: Indexes
    thread: NDArray[np.uint32]
    oldest_ms: Addresses
    newest_ms: Addresses
    requested: Addresses

    @property
    def recorded(self) -> Flags:
        """Which blocks are recorded at all."""
        found: Flags = self.thread != NOT_RECORDED
        return found

    def some(self, which: Indexes) -> Origins:
        """Return those of some leaks or kinds."""
        return Origins._make(column[which] for column in self)


class RecordedThread(NamedTuple):
    """A thread under the name that it had."""

    tid: int
    name: str


class Mapped(enum.IntEnum):
    """How a program has come by a mapping."""

    MMAP = 1
    STACK = 2
    DETACHED_STACK = 3


class RecordedMapping(NamedTuple):
    """A mapping that the program asked for and has not given back.

    Attributes:
        start, end: its addresses; of a stack, those of a byte of the thread's descriptor.
        stack, thread, time_ms: as in `Origins`.
    """

    start: int
    end: int
    kind: Mapped
    stack: int
    thread: int
    time_ms: int


class ClosedModule(NamedTuple):
    """A library that is no longer loaded; `bias` is what its addresses were moved by."""

    bias: int
    path: str
    build_id: bytes


class PythonFunction(NamedTuple):
    """A function of Python, and the file that it stands in, both as Python calls them."""

    name: str
    file: str


class Call(NamedTuple):
    """A return address; `module` is the number of a closed module that it is in, or else 0."""

    pc: int
    module: int

    @property
    def is_python(self) -> bool:
        """Whether it is a line of a Python function, which has no address."""
        return self.pc >= PYTHON


class Frame(NamedTuple):
    """One function of a stack. What is not known is None.

    Attributes:
        pc: where the call returns to. Name and line are those of the byte before it, which is the
            call's. Functions of Python have none: 0.
        module, build_id: the file that the code is mapped from, and its id in hexadecimal digits.
        offset: of `pc` in that file.
        function, function_offset: what it is called, and how far into it `pc` is.
        file, line: of the source.
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
        """What the function is called, or where its code is."""
        if self.function:
            return self.function
        if self.module:
            return f"{self.module.rpartition('/')[2]}+{self.offset or 0:#x}"
        return f"{self.pc:#x}"


Frames: TypeAlias = "Mapping[Call, tuple[Frame, ...]]"
"""Call -> its frames, the innermost first."""


def call_before(pc: int) -> int:
    """Return an address within the call that returns to `pc`, which may be another function's."""
    return max(pc - 1, 0)


class Stacks(NamedTuple):
    """Stacks as a tree: a stack is an entry, the innermost call, and those that called it.

    Attributes:
        parent: of each entry, `NO_STACK` for an outermost call. It comes before the entry.
        pc, module: of each entry, see `Call`. No two entries are alike.
    """

    parent: Indexes
    pc: Addresses
    module: NDArray[np.uint32]

    def calls(self, stack: int) -> tuple[Call, ...]:
        """Return the calls that a stack consists of, the innermost first.

        Python functions stand for the interpreter's that evaluates them.
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
        """Return addresses of all calls from modules that are still loaded."""
        calls = self.all_calls()
        return [call_before(c.pc) for c in calls if not c.module and not c.is_python]

    def all_calls(self) -> list[Call]:
        """Return all calls in all stacks, each once."""
        return sorted({*map(Call, self.pc.tolist(), self.module.tolist())})
