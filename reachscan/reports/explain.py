"""The answer to `explain` and `refs`: what a block is, what keeps it, who points to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reachscan.grouping import signatures
from reachscan.naming import containers
from reachscan.naming.places import Places
from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, layout, leaks_json, leaks_logfmt, plain
from reachscan.result import ScanResult
from reachscan.wording import count, printable

FORMAT = "reachscan-block"
VERSION = 1

STATES = {
    model.NO_HEAP: "none",
    model.REACHABLE: "live",
    model.LEAKED: "leaked",
    model.NOT_LIVE: "free",
}
_LINKS = 10
"""Blocks that are shown of each end of a long chain."""

HOLDERS = {
    model.ROOT_MEMORY: "memory",
    model.ROOT_WORD: "word",
    model.REACHABLE_BLOCK: "live block",
    model.LEAKED_BLOCK: "leaked block",
}


NO_CHAIN = {
    model.REACHABLE: "no pointer leads to it, but a word in another form means it",
    model.LEAKED: "nothing that the program can still reach points to it: it is a direct leak",
}

ONLY_STALE = "no other word that the program can still reach points to it: it is a direct leak"


class Answer:
    """What a scan that asked about one block found out.

    Attributes:
        state: what the block is, one of `STATES`.
        is_block: it is one that the program has allocated.
        doubt: why it is only possibly leaked (`Leaks.reason`); None if that was not looked at.
        chain: the way to it from a root; or, if it is leaked, from the head of its structure.
    """

    def __init__(self, result: ScanResult, block: model.Block) -> None:
        self.recording = result.recording
        self.block = block
        self.places = Places(self.recording)
        self.state = STATES.get(block.state, "unknown")
        self.is_block = block.state in (model.REACHABLE, model.LEAKED)
        self.chain = self.recording.chain or tuple(_owners(self.recording.leaks, block))
        self.doubt = _doubt(self.recording.leaks, block)
        self._result = result
        self._kinds = _kinds(result)

    def kind(self, address: int) -> Kind:
        """Return what is known of the block that begins at an address."""
        return self._kinds.get(address) or _kind_of_leak(self._result, address)


class Kind(NamedTuple):
    """What is known of a block, None where nothing is."""

    type: str | None = None
    shape: str | None = None
    signature: str | None = None

    def __str__(self) -> str:
        """Return it in words for people."""
        return printable(self.type or ": ".join(filter(None, (self.shape, self.signature))))


def _kinds(result: ScanResult) -> dict[int, Kind]:
    """Return what is known of blocks that the stream describes, by their addresses."""
    recording, folding = result.recording, result.folding
    if recording.kinds is None:
        return {}
    columns, labels = signatures.classify(
        recording, recording.names or {}, signatures.Words(recording)
    )
    words = zip(*(column.tolist() for column in columns), strict=True)
    rows = zip(
        recording.kinds.example.tolist(),
        folding.type[folding.group_of_row].tolist(),
        recording.kinds.shape.tolist(),
        words,
        strict=True,
    )
    return {
        address: Kind(
            folding.types[type_] if type_ >= 0 else None,
            containers.shape_name(shape) or None,
            " | ".join(labels[code] for code in codes if code != signatures.ABSENT),
        )
        for address, type_, shape, codes in rows
    }


def _kind_of_leak(result: ScanResult, address: int) -> Kind:
    leaks, folding = result.recording.leaks, result.folding
    found = np.flatnonzero(leaks.address == np.uint64(address))
    if not len(found):
        return Kind()
    types = folding.type_of_vtable[folding.vtables == leaks.first_word[found[0]]].tolist()
    shape = containers.shape_name(int(leaks.shape[found[0]]))
    return Kind(folding.types[types[0]] if types else None, shape or None)


def _doubt(leaks: model.Leaks, block: model.Block) -> int | None:
    reasons = leaks.reason[leaks.address == np.uint64(block.start)].tolist()
    return int(reasons[0]) if reasons else None


def _owners(leaks: model.Leaks, block: model.Block) -> Iterator[model.Reference]:
    """Yield the leaked blocks through which a leaked one was reached, the head first."""
    position: NDArray[Any] = np.flatnonzero(leaks.address == np.uint64(block.start))
    way: list[int] = []
    while len(position) and leaks.parent[position[0]] != model.DIRECT:
        way.append(int(position[0]))
        position = leaks.parent[position]
    way += position.tolist()
    for below, owner in zip(way[-2::-1], way[:0:-1], strict=True):
        address, size, value = leaks.address[owner], leaks.size[owner], leaks.address[below]
        # Where in its owner the pointer lies is not in the stream.
        yield model.Reference(0, int(value), model.LEAKED_BLOCK, 0, int(address), int(size))


def lines(
    format_: str,
    result: ScanResult,
    block: model.Block,
    selection: Selection,
    style: Style = plain,
) -> Iterator[str]:
    """Yield the answer line by line, without line ends.

    Args:
        format_: "text", "json" or "logfmt".
        result: what was found out.
        block: the block that it is about.
        selection: how many references are listed.
        style: what text looks like.
    """
    answer = Answer(result, block)
    if format_ == "json":
        yield json.dumps(document(answer), indent=2)
    elif format_ == "logfmt":
        yield from _logfmt(answer)
    else:
        yield from _text(answer, selection, style)


def document(answer: Answer) -> dict[str, Any]:
    """Return the answer for machines; schema/block-v1.json describes it."""
    recording, block = answer.recording, answer.block
    return {
        "format": FORMAT,
        "version": VERSION,
        **leaks_json.facts(recording),
        "asked": hex(block.asked),
        "state": answer.state,
        "confidence": confidence.confidence(answer.doubt) if answer.doubt is not None else None,
        "reason": confidence.NAMES.get(answer.doubt or model.DEFINITE),
        "place": answer.places.of_address(block.asked).text if not answer.is_block else None,
        "mapping": answer.places.mapping_of(block.asked),
        "block": _block(answer, block.start, block.size) if answer.is_block else None,
        "arena": block.arena if answer.is_block else None,
        "chain": [_reference(answer, r) for r in answer.chain],
        "sightings": [
            {
                "form": confidence.NAMES[seen.form],
                "about": hex(seen.about),
                **_reference(answer, seen.word),
            }
            for seen in recording.sightings
        ],
        "references": [_reference(answer, r) for r in recording.references],
        **leaks_json.caveats(recording),
    }


def _block(answer: Answer, start: int, size: int) -> dict[str, Any]:
    return {"address": hex(start), "size": size, **answer.kind(start)._asdict()}


def _reference(answer: Answer, reference: model.Reference) -> dict[str, Any]:
    in_block = reference.holder in (model.REACHABLE_BLOCK, model.LEAKED_BLOCK)
    place = answer.places.of_reference(reference)
    return {
        "holder": HOLDERS.get(reference.holder, "unknown"),
        "kind": place.kind,
        "place": place.text,
        "slot": hex(reference.slot) if reference.slot else None,
        "value": hex(reference.value),
        "block": _block(answer, reference.block, reference.size) if in_block else None,
    }


def _logfmt(answer: Answer) -> Iterator[str]:
    recording, block = answer.recording, answer.block
    who = leaks_logfmt.who(recording.target)
    yield leaks_logfmt.line(
        event="block",
        **who,
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
            yield leaks_logfmt.line(
                event=event,
                **who,
                kind=place.kind,
                place=place.text,
                slot=hex(reference.slot) if reference.slot else None,
                value=hex(reference.value),
                what=str(answer.kind(reference.block)) or None,
            )


def _text(answer: Answer, selection: Selection, style: Style) -> Iterator[str]:
    recording = answer.recording
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


def _chain(answer: Answer, style: Style) -> Iterator[str]:
    block, links = answer.block, answer.chain
    if not links:
        stale = answer.doubt == model.STALE_WORD
        yield from layout.paragraph(ONLY_STALE if stale else NO_CHAIN[block.state], "plain", style)
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
    """Return where a reference is: its place, and for a block what that is."""
    text = answer.places.of_reference(reference).text
    if reference.holder in (model.REACHABLE_BLOCK, model.LEAKED_BLOCK):
        what = str(answer.kind(reference.block))
        return f"{text}{what and f': {what}'}"
    return f"{text}, at {reference.slot:#x}" if reference.slot else text


def _arrow(reference: model.Reference, start: int) -> str:
    """Return from where in its block, and to where in the next, a reference goes."""
    origin = f"+{reference.slot - reference.block:#x}" if reference.block and reference.slot else ""
    target = f"{reference.value - start:#x} into " if reference.value != start else ""
    return f"{origin:>12} -> {target}"


def _sightings(answer: Answer, style: Style) -> Iterator[str]:
    """Yield the words that are no pointers but mean the block, or what owns it."""
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
