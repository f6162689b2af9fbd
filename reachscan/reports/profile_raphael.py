"""The report of Raphael, a memory profiler for Android: blocks, each with its stack.

A block is a line `address, size, count`, followed by its frames, innermost first. Live blocks that
are alike share one entry, with the address of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.recording.origins import NO_STACK, Frame
from reachscan.recording.zip_equal import zip_equal
from reachscan.reports import Selection, Style, plain
from reachscan.reports.profile import Names, Scan, blocks
from reachscan.wording import printable


def lines(scan: Scan, _: Selection, __: Style = plain) -> Iterator[str]:
    """Yield the report line by line."""
    names, found = Names(scan.recording), blocks(scan)
    stacks = found.origins.stack.tolist() if found.origins else [NO_STACK] * len(found.size)
    columns = (found.address.tolist(), found.size.tolist(), found.count.tolist(), stacks)
    for address, size, count, stack in zip_equal(*columns):
        yield ""
        yield f"{address:#018x}, {size}, {count}"
        for frame in names.frames(stack):
            # A frame is an address here, and Python functions have none.
            if frame.pc and not frame.inlined:
                yield _frame(frame, names.offset(frame))


def _frame(frame: Frame, offset: int) -> str:
    if frame.module is None:
        return f"{frame.pc:#018x} <unknown>"
    where = f"{offset:#018x} {printable(frame.module)}"
    if frame.function is None:
        return f"{where} (unknown)"
    return f"{where} ({printable(frame.function)} + {frame.function_offset or 0})"
