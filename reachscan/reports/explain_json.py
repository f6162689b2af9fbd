"""The answer to `explain` and `refs` for programs; schema/block-v1.json describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, plain, stacks
from reachscan.reports.explain import HOLDERS, Answer
from reachscan.reports.json_parts import caveats, facts
from reachscan.result import BlockAnswer

FORMAT = "reachscan-block"
VERSION = 1


def lines(result: BlockAnswer, _: Selection, __: Style = plain) -> Iterator[str]:
    """Yield the document, as one piece without a line end."""
    yield json.dumps(document(Answer(result)), indent=2)


def document(answer: Answer) -> dict[str, Any]:
    """Return the document that schema/block-v1.json describes."""
    recording, block = answer.recording, answer.block
    table = stacks.Table(recording)
    return {
        "format": FORMAT,
        "version": VERSION,
        **facts(recording),
        "asked": hex(block.asked),
        "state": answer.state,
        "confidence": confidence.confidence(answer.doubt) if answer.doubt is not None else None,
        "reason": confidence.NAMES.get(answer.doubt or model.DEFINITE),
        "place": answer.places.of_address(block.asked).text if not answer.is_block else None,
        "mapping": answer.places.mapping_of(block.asked),
        "block": _block(answer, block.start, block.size, table) if answer.is_block else None,
        "arena": block.arena if answer.is_block else None,
        "chain": [_reference(answer, r, table) for r in answer.chain],
        "sightings": [
            {
                "form": confidence.NAMES[seen.form],
                "about": hex(seen.about),
                **_reference(answer, seen.word, table),
            }
            for seen in recording.sightings
        ],
        "references": [_reference(answer, r, table) for r in recording.references],
        "stacks": table.rows(),
        **caveats(recording.warnings),
    }


def _block(answer: Answer, start: int, size: int, table: stacks.Table) -> dict[str, Any]:
    known = {"address": hex(start), "size": size, **answer.kind(start)._asdict()}
    found = stacks.of_block(answer.recording, start)
    if found is None:
        return known | {"stack": None}
    return known | stacks.block(answer.recording, *found, table)


def _reference(answer: Answer, reference: model.Reference, table: stacks.Table) -> dict[str, Any]:
    in_block = reference.holder in (model.REACHABLE_BLOCK, model.LEAKED_BLOCK)
    place = answer.places.of_reference(reference)
    return {
        "holder": HOLDERS[reference.holder],
        "kind": place.kind,
        "place": place.text,
        "slot": hex(reference.slot) if reference.slot else None,
        "value": hex(reference.value),
        "block": _block(answer, reference.block, reference.size, table) if in_block else None,
    }
