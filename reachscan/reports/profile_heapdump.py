"""Android's text dump of a native heap, version 1.2, as `am dumpheap -n` writes it.

Sizes are requested bytes. Readers find names by the mappings at its end. Names that are known here
are added in the way in which Android adds those of backtraces that it unwinds itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reachscan.recording import model
from reachscan.recording.origins import Frame
from reachscan.reports import Selection, Style, plain
from reachscan.reports.profile import Names, Scan, samples
from reachscan.wording import printable

_PERMISSIONS = ((model.READ, "r"), (model.WRITE, "w"), (model.EXECUTE, "x"))


def lines(scan: Scan, _: Selection, __: Style = plain) -> Iterator[str]:
    """Yield the dump line by line."""
    names = Names(scan.recording)
    counts: Counter[tuple[int, tuple[Frame, ...]]] = Counter()
    for sample in samples(scan):
        # One return address is one frame, whatever was inlined there.
        # A frame is an address here, and Python functions have none.
        physical = tuple(f for f in names.frames(sample.stack) if f.pc and not f.inlined)
        counts[sample.requested, physical] += sample.allocations
    records = sorted(counts.items(), key=_order)
    yield from ("Android Native Heap Dump v1.2", "", "Build fingerprint: 'unknown'", "")
    yield f"Total memory: {sum(size * count for (size, _), count in records)}"
    yield f"Allocation records: {len(records)}"
    yield f"Backtrace size: {max((len(frames) for (_, frames), _ in records), default=0)}"
    yield ""
    for (size, frames), count in records:
        yield f"z 0  sz {size:8}  num    {count}  bt{''.join(f' {f.pc:x}' for f in frames)}"
        if any(frame.function for frame in frames):
            yield f"  bt_info{''.join(_info(f, names.offset(f)) for f in frames)}"
    yield "MAPS"
    yield from map(_mapping, scan.recording.mappings)
    yield "END"


def _order(record: tuple[tuple[int, tuple[Frame, ...]], int]) -> tuple[object, ...]:
    """Return Android's sort key: large blocks first, blocks without a stack last."""
    (size, frames), _ = record
    return -size, -len(frames), [frame.pc for frame in frames]


def _info(frame: Frame, offset: int) -> str:
    module, function = printable(frame.module or ""), printable(frame.function or "")
    return f' {{"{module}" {offset:x} "{function}" {frame.function_offset or 0:x}}}'


def _mapping(mapping: model.Mapping) -> str:
    flags = "".join(c if mapping.permissions & bit else "-" for bit, c in _PERMISSIONS)
    shared = "s" if mapping.permissions & model.SHARED else "p"
    place = f"{mapping.start:08x}-{mapping.end:08x} {flags}{shared} {mapping.offset:08x} 00:00"
    return f"{place} {mapping.inode:<10} {printable(mapping.path)}".rstrip()
