"""The answer to `explain` and `refs` for logs."""

from __future__ import annotations

from collections.abc import Iterator

from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, plain
from reachscan.reports.explain import Answer
from reachscan.reports.json_parts import is_complete
from reachscan.reports.logfmt import codes, line, who
from reachscan.result import BlockAnswer


def lines(result: BlockAnswer, _: Selection, __: Style = plain) -> Iterator[str]:
    """Yield a line about the block, and one for each word that refers to it."""
    answer = Answer(result)
    recording, block = answer.recording, answer.block
    yield line(
        event="block",
        **who(recording.target),
        asked=hex(block.asked),
        state=answer.state,
        confidence=confidence.confidence(answer.doubt) if answer.doubt is not None else None,
        reason=confidence.NAMES.get(answer.doubt or model.DEFINITE),
        block=hex(block.start) if answer.is_block else None,
        size=block.size if answer.is_block else None,
        what=str(answer.kind(block.start)) or None,
        place=None if answer.is_block else answer.places.of_address(block.asked).text,
        complete=is_complete(recording.warnings),
        warnings=codes(recording.warnings),
    )
    for reference in answer.chain:
        yield _word(answer, "link", reference)
    for seen in recording.sightings:
        yield _word(answer, "sighting", seen.word, confidence.NAMES[seen.form])
    for reference in recording.references:
        yield _word(answer, "reference", reference)


def _word(answer: Answer, event: str, word: model.Reference, form: str | None = None) -> str:
    place = answer.places.of_reference(word)
    return line(
        event=event,
        **who(answer.recording.target),
        form=form,
        kind=place.kind,
        place=place.text,
        slot=hex(word.slot) if word.slot else None,
        value=hex(word.value),
        what=str(answer.kind(word.block)) or None,
    )
