"""Options of a recording, and how they are passed to the recorder."""

from __future__ import annotations

from typing import NamedTuple

from reachscan.capture.patterns import Step

VARIABLE = "REACHSCAN_RECORDER"
"""Environment variable with one line per setting (native/recorder/settings.hpp)."""

MAX_DEPTH = 256
MAX_RANGES = 16
MIN_MEMORY = 1 << 20


STACKS = {"auto": 0, "frame-pointers": 1, "tables": 2, "instrumented": 3}
"""Ways to capture stacks, by their numbers in native/recorder/tables.hpp."""


class RecordingOptions(NamedTuple):
    """What to record. Sizes are in bytes, as the program requests them.

    Attributes:
        min_size: smaller blocks are not recorded.
        sizes: only blocks of these sizes, as pairs of the first and the last; empty for all.
        sample: mean distance of samples in bytes; 0 to record everything.
        depth: maximum number of frames in a stack.
        memory: size of the recorder's tables in bytes.
        stacks: one of `STACKS`.
        stop_at: stop recording at this many live bytes; 0 for never.
        mmap: record mappings, too.
        module, thread: record only allocations by modules with a matching path, or by threads with
            a matching name; as `patterns.compiled` returns them, empty for all.
    """

    min_size: int = 0
    sizes: tuple[tuple[int, int], ...] = ()
    sample: int = 0
    depth: int = 32
    memory: int = 64 << 20
    stacks: str = "auto"
    stop_at: int = 0
    mmap: bool = False
    module: tuple[Step, ...] = ()
    thread: tuple[Step, ...] = ()

    def settings(self, parent: int = 0, notice: str = "", signal: int = 0) -> str:
        """Return the value of `VARIABLE`, which the helper also passes to a recorder.

        Args:
            parent: the process that waits for its child to exit, if any.
            notice: the socket that it waits on.
            signal: the signal that requests a report; 0 for none.
        """
        lines = {
            "depth": self.depth,
            "min-size": self.min_size,
            "sample": self.sample,
            "stop-at": self.stop_at,
            "mmap": int(self.mmap),
            "memory": self.memory,
            "stacks": STACKS[self.stacks],
            "module": _steps(self.module),
            "thread": _steps(self.thread),
            "sizes": ",".join(f"{first}-{last}" for first, last in self.sizes),
            "parent": parent,
            "signal": signal,
            "notice": notice,
        }
        return "\n".join(f"{name}={value}" for name, value in lines.items() if value)


def _steps(pattern: tuple[Step, ...]) -> str:
    return ";".join(f"{kind},{first},{second}" for kind, first, second in pattern)
