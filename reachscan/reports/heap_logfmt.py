"""The report on the live heap for logs."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.reports import Selection, Style, plain
from reachscan.reports.heap import rows
from reachscan.reports.json_parts import is_complete
from reachscan.reports.logfmt import codes, line, who
from reachscan.result import HeapScan


def lines(result: HeapScan, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield a summary line, and a line for each kind."""
    recording, totals = result.recording, result.recording.totals
    found, whose = rows(result, selection.limit), who(recording.target)
    yield line(
        event="heap",
        **whose,
        method=recording.snapshot.method,
        pause_us=recording.snapshot.pause_ns // 1000,
        allocations=totals.allocations,
        bytes=totals.bytes,
        groups=len(result.folding.example),
        groups_shown=len(found),
        complete=is_complete(result.warnings),
        warnings=codes(result.warnings),
    )
    for group, arenas in found:
        yield line(
            event="kind",
            **whose,
            allocations=group.allocations,
            bytes=group.bytes,
            size=group.size,
            type=group.type,
            shape=group.shape,
            candidates=", ".join(group.candidates) or None,
            signature=group.signature,
            key=group.key,
            arenas=",".join(str(arena.arena) for arena in arenas),
            example=f"{group.example.address:#x}",
            contents=group.example.contents[: selection.contents].hex() or None,
        )
