"""The report for programs: one JSON document, described by schema/report-v1.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from reachscan.grouping import histograms
from reachscan.grouping.groups import Branch, Group
from reachscan.history.review import by_rule
from reachscan.judgement import COUNTS, KNOWN, NOTHING, SUPPRESSED, Review, Rule, Tally
from reachscan.naming.private_memory import PrivateMemory
from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, mappings, plain, stacks
from reachscan.reports.json_parts import caveats, example, facts
from reachscan.result import LeakScan

FORMAT = "reachscan-report"
VERSION = 1
_NO_GROUPS = '\n  "groups": []'
_END = "\n}"
STANDINGS = ("counts", "known", "suppressed")


def lines(result: LeakScan, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield the document as lines of text, without line ends.

    Args:
        result: the scan.
        selection: how much of it to show.
    """
    before, after = json.dumps(_frame(result), indent=2).split(_NO_GROUPS)
    table = stacks.Table(result.recording)
    yield before + '\n  "groups": ['
    # One by one, blocks too: together, as objects or text, they would need much memory.
    yield from _rows(json.dumps(group) for group in _groups(result, selection, table))
    yield f"  ]{after.removesuffix(_END)},"
    if selection.every_block:
        yield '  "allocations": ['
        yield from _rows(_blocks(result, table))
        yield "  ],"
        if result.recording.recorded_mappings is not None:
            yield '  "mappings": ['
            yield from _rows(map(json.dumps, mappings.rows(result.recording, table)))
            yield "  ],"
    # Last, after everything that refers to stacks.
    yield '  "stacks": ['
    yield from _rows(map(json.dumps, table.rows()))
    yield f"  ]{_END}"


def document(result: LeakScan, selection: Selection) -> dict[str, Any]:
    """Return the report without the list of every block."""
    table = stacks.Table(result.recording)
    groups = list(_groups(result, selection, table))
    return {**_frame(result), "groups": groups, "stacks": table.rows()}


def _frame(result: LeakScan) -> dict[str, Any]:
    """Return the report without its groups."""
    recording, totals = result.recording, result.recording.totals
    return {
        "format": FORMAT,
        "version": VERSION,
        **facts(recording),
        "heap": {"allocations": totals.allocations, "bytes": totals.bytes},
        "memory": _memory(result.memory),
        "leaks": _leaks(result),
        "confirmation": _confirmation(recording.confirmation),
        "moments": _moments(recording.moments),
        "collectible": recording.collectible._asdict() if recording.collectible else None,
        "counted": result.counted._asdict(),
        "suppressed": _suppressed(result),
        "baseline": _baseline(result.review),
        "groups_total": len(result.folding.example),
        "groups": [],
        **caveats(result.warnings),
    }


def _groups(
    result: LeakScan, selection: Selection, table: stacks.Table
) -> Iterator[dict[str, Any]]:
    for i, group in enumerate(result.groups(selection.limit)):
        where_from = stacks.group(group.origin, table)
        standing = _standing(result.review, i, group.key)
        yield _group(group, selection.contents) | where_from | standing


def _rows(rows: Iterable[str]) -> Iterator[str]:
    """Yield the elements of a list, one per line, with commas between them."""
    last = None
    for row in rows:
        if last is not None:
            yield f"    {last},"
        last = row
    if last is not None:
        yield f"    {last}"


def _leaks(result: LeakScan) -> dict[str, Any]:
    totals = result.recording.totals
    possible_allocations, possible_bytes = result.possible
    return {
        "allocations": totals.leaked,
        "bytes": totals.leaked_bytes,
        "direct_allocations": totals.direct,
        "direct_bytes": totals.direct_bytes,
        "possible_allocations": possible_allocations,
        "possible_bytes": possible_bytes,
        "sizes": [row._asdict() for row in histograms.of_all(result.recording.leaks)],
    }


def _memory(memory: PrivateMemory | None) -> dict[str, Any] | None:
    if memory is None:
        return None
    return {
        "bytes": memory.total,
        "heap_bytes": memory.heap,
        **{f"{kind}_bytes": amount for kind, amount in memory.rest.items()},
        "largest": [
            {**part._asdict(), "start": f"{part.start:#x}", "end": f"{part.end:#x}"}
            for part in memory.largest
        ],
    }


def _confirmation(confirmed: model.Confirmation | None) -> dict[str, Any] | None:
    if confirmed is None:
        return None
    return {
        "scans": len(confirmed.pauses_ns),
        "every_us": confirmed.every_ns // 1000,
        "pauses_us": [ns // 1000 for ns in confirmed.pauses_ns],
        "vanished": Tally(*confirmed.vanished)._asdict(),
        "recent": Tally(*confirmed.recent)._asdict(),
    }


def _moments(joined: model.Moments | None) -> dict[str, Any] | None:
    if joined is None:
        return None
    return {
        "scans": len(joined.pauses_ns),
        "every_us": joined.every_ns // 1000,
        "pauses_us": [ns // 1000 for ns in joined.pauses_ns],
        "hidden": Tally(*joined.hidden)._asdict(),
        "withdrawn": Tally(*joined.withdrawn)._asdict(),
        "rested": joined.rested,
    }


def _suppressed(result: LeakScan) -> dict[str, Any]:
    tally = result.review.tallies[SUPPRESSED] if result.review else NOTHING
    rules = [
        {**_rule(rule), "groups": groups, **amount._asdict()}
        for rule, groups, amount in by_rule(result)
    ]
    return {**tally._asdict(), "rules": rules}


def _rule(rule: Rule) -> dict[str, Any]:
    return {"rule": rule.text, "source": rule.source, "reason": rule.reason}


def _baseline(review: Review | None) -> dict[str, Any] | None:
    if review is None or review.baseline is None:
        return None
    return {"source": review.baseline, "known": review.tallies[KNOWN]._asdict()}


def _standing(review: Review | None, i: int, key: str) -> dict[str, Any]:
    if review is None:
        return {"standing": STANDINGS[COUNTS], "rule": None, "before": None}
    rule, before = int(review.rule[i]), review.before.get(key)
    return {
        "standing": STANDINGS[review.standing[i]],
        "rule": _rule(review.rules[rule]) if rule >= 0 else None,
        "before": before._asdict() if before else None,
    }


def _group(group: Group, contents: int) -> dict[str, Any]:
    return {
        "allocations": group.allocations,
        "bytes": group.bytes,
        "indirect_allocations": group.indirect_allocations,
        "indirect_bytes": group.indirect_bytes,
        "size": group.size,
        "type": group.type,
        "reference_count_leak": group.is_object,
        "shape": group.shape,
        "signature": group.signature,
        "candidates": list(group.candidates),
        "key": group.key,
        "confidence": confidence.confidence(group.reason),
        "reason": confidence.NAMES.get(group.reason),
        "example": example(group.example, contents),
        "sizes": [row._asdict() for row in group.sizes],
        "tree": [_branch(branch) for branch in group.tree],
    }


def _branch(branch: Branch) -> dict[str, Any]:
    return {**branch._asdict(), "below": [_branch(other) for other in branch.below]}


def _blocks(result: LeakScan, table: stacks.Table) -> Iterator[str]:
    origins = stacks.blocks(result.recording, table)
    for block in result.blocks():
        where_from = next(origins, None)
        more = f", {json.dumps(where_from)[1:-1]}" if where_from else ""
        yield (
            f'{{"address": "{block.address:#x}", "size": {block.size}, "kind": "{block.kind}", '
            f'"confidence": "{confidence.confidence(block.reason)}", "group": {block.group}{more}}}'
        )
