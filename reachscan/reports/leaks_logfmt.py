"""The report for logs: one summary line and one line per group, key=value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reachscan.grouping.groups import Branch, Group, SizeCount
from reachscan.history.review import by_rule
from reachscan.judgement import KNOWN, NOTHING, SUPPRESSED, Rule, Tally
from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, plain
from reachscan.reports.json_parts import is_complete
from reachscan.reports.logfmt import codes, line, who
from reachscan.result import LeakScan

_ROWS = 5
"""Maximum number of sizes and branches of each group: lines of a log should stay short."""


def lines(result: LeakScan, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield the report line by line, without line ends.

    Args:
        result: the scan.
        selection: how much of it to show.
    """
    recording = result.recording
    shown = result.groups(min(selection.limit, result.groups_counted), _ROWS)
    yield _summary(result, len(shown))
    for group in shown:
        yield _group(recording.target, group, selection.contents)
    for rule, groups, tally in by_rule(result):
        yield _rule(recording.target, rule, groups, tally)
    if selection.every_block:
        yield from _blocks(result)


def _of_several_scans(recording: model.Recording) -> dict[str, int]:
    if confirmed := recording.confirmation:
        return {
            "scans": len(confirmed.pauses_ns),
            "vanished": confirmed.vanished[0],
            "recent": confirmed.recent[0],
        }
    if joined := recording.moments:
        return {
            "scans": len(joined.pauses_ns),
            "hidden": joined.hidden[0],
            "withdrawn": joined.withdrawn[0],
        }
    return {}


def _summary(result: LeakScan, shown: int) -> str:
    recording = result.recording
    totals, review = recording.totals, result.review
    suppressed = review.tallies[SUPPRESSED] if review else NOTHING
    known = review.tallies[KNOWN] if review and review.baseline else None
    possible_leaks, possible_bytes = result.possible
    memory = result.memory
    return line(
        event="scan",
        pid=recording.target.pid,
        name=recording.target.name,
        method=recording.snapshot.method,
        pause_us=recording.snapshot.pause_ns // 1000,
        heap_allocations=totals.allocations,
        heap_bytes=totals.bytes,
        private_bytes=memory.total if memory else None,
        private_heap_bytes=memory.heap if memory else None,
        leaks=totals.leaked,
        leaked_bytes=totals.leaked_bytes,
        direct=totals.direct,
        direct_bytes=totals.direct_bytes,
        possible=possible_leaks,
        possible_bytes=possible_bytes,
        **_of_several_scans(recording),
        collectible=recording.collectible.allocations if recording.collectible else None,
        collectible_bytes=recording.collectible.bytes if recording.collectible else None,
        counted=result.counted.allocations,
        counted_bytes=result.counted.bytes,
        suppressed=suppressed.allocations,
        suppressed_bytes=suppressed.bytes,
        known=known.allocations if known else None,
        known_bytes=known.bytes if known else None,
        groups=len(result.folding.example),
        groups_shown=shown,
        complete=is_complete(result.warnings),
        warnings=codes(result.warnings),
    )


def _group(target: model.Target, group: Group, contents: int) -> str:
    return line(
        event="leak",
        **who(target),
        allocations=group.allocations,
        bytes=group.bytes,
        indirect_allocations=group.indirect_allocations,
        indirect_bytes=group.indirect_bytes,
        size=group.size,
        type=group.type,
        reference_count_leak=group.is_object or None,
        candidates=", ".join(group.candidates) or None,
        signature=group.signature,
        key=group.key,
        confidence=confidence.confidence(group.reason),
        reason=confidence.NAMES.get(group.reason),
        sizes=_sizes(group.sizes) if len(group.sizes) > 1 else None,
        tree=" ".join(_branches(group.tree)) or None,
        example=f"{group.example.address:#x}",
        contents=group.example.contents[:contents].hex() or None,
    )


def _sizes(sizes: Sequence[SizeCount]) -> str:
    """Return `24:1000,40:7,other:3`: sizes and their numbers of blocks."""
    rows = (f"{'other' if row.size is None else row.size}:{row.allocations}" for row in sizes)
    return ",".join(rows)


def _branches(branches: Sequence[Branch]) -> Iterator[str]:
    """Yield `7 text, 280 B` for each branch, followed by branches below it in parentheses."""
    for branch in branches:
        name = f"{branch.kinds} more kinds" if branch.name is None else branch.name
        yield f"[{branch.allocations} {name}, {branch.bytes} B{''.join(_branches(branch.below))}]"


def _rule(target: model.Target, rule: Rule, groups: int, tally: Tally) -> str:
    return line(
        event="suppressed",
        **who(target),
        allocations=tally.allocations,
        bytes=tally.bytes,
        groups=groups,
        rule=rule.text,
        source=rule.source,
        reason=rule.reason or None,
    )


def _blocks(result: LeakScan) -> Iterator[str]:
    pid = result.recording.target.pid
    for block in result.blocks():
        yield (
            f"event=block pid={pid} address={block.address:#x} size={block.size} "
            f"kind={block.kind} confidence={confidence.confidence(block.reason)} "
            f"group={block.group}"
        )
