"""The answer to `explain` and `refs` for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, layout, plain, stacks
from reachscan.reports.explain import Answer
from reachscan.result import BlockAnswer
from reachscan.wording import count, printable

_LINKS = 10
"""Number of blocks to show at each end of a long chain."""

_NO_CHAIN = {
    model.REACHABLE: "no pointer leads to it, but a word in another form means it",
    model.LEAKED: "nothing that the program can still reach points to it: it is a direct leak",
}

_STALE_ONLY = "no other word that the program can still reach points to it: it is a direct leak"


def lines(result: BlockAnswer, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield the answer line by line, without line ends; `selection` limits the references."""
    answer, recording = Answer(result), result.recording
    yield from layout.paragraph(f"{layout.who(recording)}: {_verdict(answer)}", "headline", style)
    yield from layout.paragraph(layout.how(recording), "dim", style)
    for name, text in _facts(answer):
        yield from layout.row(f"  {name:<8}", text, "plain", style)
    if answer.is_block and not recording.references:
        yield ""
        yield from _chain(answer, style)
    yield from _sightings(answer, style)
    if recording.references:
        yield ""
        yield from _references(answer, selection.limit, style)
    yield from layout.warnings(recording.warnings, style)


def _verdict(answer: Answer) -> str:
    block = answer.block
    inside = f", {block.asked - block.start:#x} into it" if block.asked != block.start else ""
    if not answer.is_block:
        what = {model.NOT_LIVE: "is free memory of the heap, or the allocator's own"}
        return f"{block.asked:#x} {what.get(block.state, 'is no heap memory')}"
    verdict = "live: the program can reach it"
    if block.state == model.LEAKED:
        verdict = "leaked: the program has lost it"
        if answer.doubt:
            verdict = f"possibly leaked: {confidence.in_words(answer.doubt)}"
    address = f"{block.asked:#x} is{inside and ' in'} a block"
    return f"{address} of {count(block.size, 'byte')}{inside}; it is {verdict}"


def _facts(answer: Answer) -> Iterator[tuple[str, str]]:
    block, places = answer.block, answer.places
    if not answer.is_block:
        if block.state == model.NO_HEAP:
            yield "where", printable(places.of_address(block.asked).text)
        else:
            yield "where", printable(places.mapping_of(block.asked))
        return
    what = str(answer.kind(block.start))
    if what:
        yield "what", what
    yield "block", f"{block.start:#x}-{block.start + block.size:#x}"
    yield "where", f"{places.arena_of(block)}, in {printable(places.mapping_of(block.start))}"
    name = "made"
    for line in stacks.block_facts(answer.recording, block.start):
        yield name, printable(line)
        name = ""


def _chain(answer: Answer, style: Style) -> Iterator[str]:
    block, links = answer.block, answer.chain
    if not links:
        stale = answer.doubt == model.STALE_WORD
        why = _STALE_ONLY if stale else _NO_CHAIN[block.state]
        yield from layout.paragraph(why, "plain", style)
        return
    leaked = block.state == model.LEAKED
    yield style("it hangs below a leaked block:" if leaked else "what keeps it:", "dim")
    rows = [printable(_holder(answer, link)) for link in links]
    what = str(answer.kind(block.start))
    rows.append(f"block {block.start:#x}, {count(block.size, 'byte')}{what and f': {what}'}")
    yield from layout.row("  ", rows[0], "plain", style)
    hidden = range(_LINKS, len(rows) - _LINKS)
    for i, row in enumerate(rows[1:], 1):
        if i == hidden.start:
            yield f"{'':>12}... {count(len(hidden), 'more block')} on the way, told by --json"
        if i not in hidden:
            start = links[i].block if i < len(links) else block.start
            yield from layout.row(_arrow(links[i - 1], start), row, "plain", style)


def _holder(answer: Answer, reference: model.Reference) -> str:
    """Return the place of a reference, and the description of the block that contains it."""
    text = answer.places.of_reference(reference).text
    if reference.holder in (model.REACHABLE_BLOCK, model.LEAKED_BLOCK):
        what = str(answer.kind(reference.block))
        return f"{text}{what and f': {what}'}"
    return f"{text}, at {reference.slot:#x}" if reference.slot else text


def _arrow(reference: model.Reference, start: int) -> str:
    """Return the offsets of a reference in its own block and in its target."""
    origin = f"+{reference.slot - reference.block:#x}" if reference.block and reference.slot else ""
    target = f"{reference.value - start:#x} into " if reference.value != start else ""
    return f"{origin:>12} -> {target}"


def _sightings(answer: Answer, style: Style) -> Iterator[str]:
    """Yield words that are no pointers but refer to the block, or to its owner."""
    for seen in answer.recording.sightings:
        means = "it" if seen.about == answer.block.start else f"its owner {seen.about:#x}"
        yield ""
        stale = seen.form == model.STALE_WORD
        word = "a word that looks left over and" if stale else "a word in another form that"
        yield style(f"{word} means {means} ({confidence.NAMES[seen.form]}):", "dim")
        text = printable(_holder(answer, seen.word))
        if seen.word.block:
            text = f"{seen.word.slot - seen.word.block:#x} into {text}"
        yield from layout.row("  ", f"{text}, holds {seen.word.value:#x}", "plain", style)


def _references(answer: Answer, limit: int, style: Style) -> Iterator[str]:
    found = answer.recording.references
    yield style(f"{count(len(found), 'word')} {_point(found)} to it:", "dim")
    for reference in found[:limit]:
        inside = reference.value - answer.block.start
        text = _holder(answer, reference)
        if reference.block:
            leaked = " (leaked)" if reference.holder == model.LEAKED_BLOCK else ""
            text = f"{reference.slot - reference.block:#x} into {text}{leaked}"
        target = f" -> {inside:#x} into it" if inside else ""
        yield from layout.row("  ", printable(text + target), "plain", style)
    if len(found) > limit:
        yield f"  and {len(found) - limit} more, shown by --limit {len(found)}"


def _point(found: Sequence[model.Reference]) -> str:
    return "points" if len(found) == 1 else "point"
