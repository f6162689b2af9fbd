"""Options of a recording, and how they are passed to the recorder."""

from __future__ import annotations

from typing import NamedTuple

from reachscan.capture.patterns import Step

VARIABLE = "REACHSCAN_RECORDER"
"""Of the environment: a line for each setting (native/recorder/settings.hpp)."""

MAX_DEPTH = 256
MAX_RANGES = 16
LEAST_MEMORY = 1 << 20


STACKS = {"auto": 0, "frame-pointers": 1, "tables": 2, "instrumented": 3}
"""Ways to take stacks, as native/recorder/tables.hpp numbers them."""


class RecordingOptions(NamedTuple):
    """What is recorded. Sizes are bytes as they are asked for.

    Attributes:
        min_size: smaller blocks are not recorded.
        sizes: only blocks of these sizes, as pairs of the first and the last; empty for all.
        sample: mean distance of samples in bytes; 0 records everything.
        depth: frames that are kept of a stack.
        memory: bytes for all that is recorded.
        stacks: one of `STACKS`.
        stop_at: recording ends when so much is allocated and not freed; 0 for never.
        mmap: mappings are recorded, too.
        module, thread: only what modules with such a path, threads with such a name allocate;
            patterns as `patterns.compiled` returns them, empty for all.
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
        """Return the value of `VARIABLE`, which is also what the helper tells a recorder.

        Args:
            parent: the process that waits for the end of its child, if one does.
            notice: the socket on which it waits.
            signal: asks it for a report; 0 for none.
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
