"""The answer to `explain` and `refs` for logs."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.reports import Selection, Style, plain
from reachscan.reports.explain import Answer
from reachscan.reports.logfmt import line, who
from reachscan.result import BlockAnswer


def lines(result: BlockAnswer, _: Selection, __: Style = plain) -> Iterator[str]:
    """Yield a line about the block, and one for each word that refers to it."""
    answer = Answer(result)
    recording, block, whose = answer.recording, answer.block, who(answer.recording.target)
    yield line(
        event="block",
        **whose,
        asked=hex(block.asked),
        state=answer.state,
        block=hex(block.start) if answer.is_block else None,
        size=block.size if answer.is_block else None,
        what=str(answer.kind(block.start)) or None,
        place=None if answer.is_block else answer.places.of_address(block.asked).text,
    )
    seen = [sighting.word for sighting in recording.sightings]
    events = (("link", answer.chain), ("sighting", seen), ("reference", recording.references))
    for event, rows in events:
        for reference in rows:
            place = answer.places.of_reference(reference)
            yield line(
                event=event,
                **whose,
                kind=place.kind,
                place=place.text,
                slot=hex(reference.slot) if reference.slot else None,
                value=hex(reference.value),
                what=str(answer.kind(reference.block)) or None,
            )
