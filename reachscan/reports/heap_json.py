"""The report on the live heap for programs: one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reachscan.grouping.groups import Group
from reachscan.reports import Selection, Style, plain, stacks
from reachscan.reports.heap import Arena, rows
from reachscan.reports.json_parts import caveats, example, facts
from reachscan.result import HeapScan

FORMAT = "reachscan-heap"
VERSION = 1


def lines(result: HeapScan, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield the document, as one piece without a line end."""
    yield json.dumps(document(result, selection), indent=2)


def document(result: HeapScan, selection: Selection) -> dict[str, Any]:
    """Return the report for programs."""
    totals = result.recording.totals
    table = stacks.Table(result.recording)
    groups = [
        _group(group, arenas, selection.contents) | stacks.group(group.origin, table)
        for group, arenas in rows(result, selection.limit)
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        **facts(result.recording),
        "heap": {"allocations": totals.allocations, "bytes": totals.bytes},
        "groups_total": len(result.folding.example),
        "groups": groups,
        "stacks": table.rows(),
        **caveats(result.warnings),
    }


def _group(group: Group, arenas: list[Arena], contents: int) -> dict[str, Any]:
    return {
        "allocations": group.allocations,
        "bytes": group.bytes,
        "size": group.size,
        "type": group.type,
        "shape": group.shape,
        "signature": group.signature,
        "candidates": list(group.candidates),
        "key": group.key,
        "arenas": [arena._asdict() for arena in arenas],
        "example": example(group.example, contents),
        "sizes": [row._asdict() for row in group.sizes],
    }
