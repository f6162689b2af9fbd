"""The report on leaks for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from reachscan.judgement import KNOWN, SUPPRESSED, Review
from reachscan.naming import private_memory
from reachscan.recording import model
from reachscan.reports import Selection, Style, confidence, layout, mappings, plain, stacks
from reachscan.result import LeakScan
from reachscan.wording import count, cut, exact_size, number, printable, size

if TYPE_CHECKING:
    from reachscan.grouping.groups import Branch, Folding, Group, SizeCount

_SIZE_WIDTH = 8
_DETAILS = 6
"""Maximum number of rows in the tree and in the sizes of a group."""


def lines(result: LeakScan, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield the report line by line, without line ends.

    Args:
        result: the scan.
        selection: how much of it to show.
        style: how it looks.
    """
    recording = result.recording
    if recording.totals.leaked:
        counts = result.counted.allocations
        yield from layout.paragraph(_headline(result), "headline" if counts else "good", style)
        yield from layout.paragraph(f"{_split(recording)}; {layout.how(recording)}", "dim", style)
        yield from layout.paragraph(layout.memory_not_listed(result), "dim", style)
        yield from layout.paragraph(layout.confirmation(recording), "dim", style)
        yield from layout.paragraph(layout.collectible(recording), "dim", style)
        yield from layout.paragraph(stacks.recorded(recording), "dim", style)
        yield from layout.paragraph(_possible(result), "warning", style)
        yield ""
        yield from _table(result, selection, style)
        if selection.every_block:
            yield ""
            yield from _blocks(result)
    else:
        covered = result.memory is None or not result.memory.hides_heaps
        yield from layout.paragraph(_no_leaks(result), "good" if covered else "headline", style)
        yield from layout.paragraph(layout.how(recording), "dim", style)
        yield from layout.paragraph(layout.memory_not_listed(result), "dim", style)
        yield from layout.paragraph(layout.confirmation(recording), "dim", style)
        yield from layout.paragraph(layout.collectible(recording), "dim", style)
        yield from layout.paragraph(stacks.recorded(recording), "dim", style)
    yield from mappings.lines(recording, selection, style)
    yield from layout.warnings(result.warnings, style)


def _headline(result: LeakScan) -> str:
    recording, totals = result.recording, result.recording.totals
    leaks = f"{count(totals.leaked, 'leaked block')}, {size(totals.leaked_bytes)}"
    others = _others(result.review)
    if others and not result.counted.allocations:
        return f"{layout.who(recording)}: no leaks that count: {leaks}, {others}{_covered(result)}"
    of = f"of {totals.allocations} allocated{layout.allocators(recording)}"
    others = f"; {others}" if others else ""
    return f"{layout.who(recording)}: {leaks}, {of}{others}{_covered(result)}"


def _covered(result: LeakScan) -> str:
    """Return the part of a headline that says how much memory was searched for leaks."""
    if result.memory is None:
        return ""
    heap = f"{private_memory.heap_owner(result.recording)} is {size(result.memory.heap)}"
    return f"; {heap} of {size(result.memory.total)} of private memory"


def _others(review: Review | None) -> str:
    """Return how many blocks do not count, and the reasons."""
    if review is None:
        return ""
    _, known, suppressed = (tally.allocations for tally in review.tallies)
    reasons = [f"{known} known"] * bool(known) + [f"{suppressed} suppressed"] * bool(suppressed)
    return ", ".join(reasons)


def _split(recording: model.Recording) -> str:
    totals = recording.totals
    indirect = size(totals.leaked_bytes - totals.direct_bytes)
    return (
        f"{totals.direct} direct ({size(totals.direct_bytes)}) "
        f"and {totals.leaked - totals.direct} indirect ({indirect})"
    )


def _possible(result: LeakScan) -> str:
    leaks, amount = result.possible
    return f"of these, {count(leaks, 'block')} ({size(amount)}) only possibly leaked" * (leaks > 0)


def _no_leaks(result: LeakScan) -> str:
    recording, totals = result.recording, result.recording.totals
    blocks, amount = count(totals.allocations, "block"), size(totals.bytes)
    found = f"no leaks that count among {blocks}, {amount}"
    if any(warning.code == model.UNRECORDED for warning in recording.warnings):
        found = f"there are new leaks, but none was recorded, among {blocks}, {amount}"
    elif not _omits_blocks(recording):
        found = f"no leaks: {blocks}, {amount}, all reachable"
    return f"{layout.who(recording)}: {found}{layout.allocators(recording)}{_covered(result)}"


def _omits_blocks(recording: model.Recording) -> bool:
    """Return whether there are unreachable blocks that do not count; lines below say why."""
    confirmed, waiting = recording.confirmation, recording.collectible
    return (
        bool(confirmed and (confirmed.vanished[0] or confirmed.recent[0]))
        or bool(waiting and waiting.allocations)
        or any(warning.code == model.NOT_RECORDED for warning in recording.warnings)
    )


def _table(result: LeakScan, selection: Selection, style: Style) -> Iterator[str]:
    totals = result.recording.totals
    counted = result.groups_counted
    shown = result.groups(min(selection.limit, counted), _DETAILS)
    header = _columns("bytes", "direct", "indirect", "size")
    yield style(f"{header}what nothing points to", "dim")
    for group in shown:
        yield from _group(result.recording, group, selection, style)
        yield from _before(group, result.review, style)
    hidden = counted - len(shown)
    if hidden:
        yield from _hidden(result, len(shown), hidden, style)
    yield from _set_aside(result, style)
    yield style(_columns("-" * 10, "-" * 8, "-" * 8).rstrip(), "dim")
    kinds = count(len(result.folding.example), "kind")
    indirect = totals.leaked - totals.direct
    columns = _columns(size(totals.leaked_bytes), number(totals.direct), number(indirect))
    yield f"{columns}in all, {kinds}"


def _columns(amount: str, direct: str, indirect: str, each: str = "") -> str:
    return f"{amount:>10}  {direct:>8}  {indirect:>8}  {each:>{_SIZE_WIDTH}}  "


def _group(
    recording: model.Recording, group: Group, selection: Selection, style: Style
) -> Iterator[str]:
    columns = _columns(
        size(group.bytes + group.indirect_bytes),
        number(group.allocations),
        number(group.indirect_allocations),
        _range([row.size for row in group.sizes]),
    )
    for text, what in _known(group):
        yield from layout.row(columns, text, what, style)
        columns = " " * len(columns)
    yield from _tree(group.tree, style.width)
    yield from layout.key(group, style)
    yield from stacks.lines(recording, group, style)
    yield from layout.example(group.example, selection.contents, style)


def _known(group: Group) -> Iterator[tuple[str, str]]:
    """Yield facts about the direct leaks themselves, with the role of each text."""
    yield layout.title(group), "headline"
    if group.type and group.signature and not group.is_object:
        yield printable(group.signature), "dim"
    if group.candidates:
        yield layout.candidates(group), "dim"
    if group.reason != model.DEFINITE:
        yield f"possible: {confidence.in_words(group.reason)}", "warning"
    if len(group.sizes) > 1:
        yield _sizes(group.sizes), "dim"


def _range(sizes: Sequence[int | None]) -> str:
    """Return the sizes from the smallest to the largest; None stands for any size."""
    known = [size for size in sizes if size is not None]
    least, most = min(known, default=0), max(known, default=0)
    if least == most and None not in sizes:
        return exact_size(least)
    shown = f"{least}-{most}"
    return shown if None not in sizes and len(shown) <= _SIZE_WIDTH else "varies"


def _sizes(sizes: Sequence[SizeCount]) -> str:
    rows = [
        f"{number(row.allocations)} of {'other sizes' if row.size is None else f'{row.size} bytes'}"
        for row in sizes
    ]
    return ", ".join(rows)


def _tree(branches: Sequence[Branch], width: int, guide: str = "") -> Iterator[str]:
    """Yield the blocks below a group. The group's bytes include theirs: no second column."""
    for branch in branches:
        is_last = branch is branches[-1]
        each = _range([branch.smallest, branch.largest]) if branch.name else ""
        name = printable(branch.name or count(branch.kinds, "more kind"))
        columns = _columns("", "", number(branch.allocations), each)
        amount = f", {size(branch.bytes)}"
        text = f"{guide}{'└' if is_last else '├'} {name}"
        yield columns + cut(text, width - len(columns) - len(amount)) + amount
        yield from _tree(branch.below, width, f"{guide}{' ' if is_last else '│'} ")


def _hidden(result: LeakScan, shown: int, hidden: int, style: Style) -> Iterator[str]:
    what = f"{count(hidden, 'more kind')}, shown by --limit {shown + hidden}"
    columns = _sums(result.folding, slice(shown, shown + hidden))
    yield from layout.row(columns, what, "plain", style)


def _sums(folded: Folding, some: slice | model.Flags) -> str:
    amount = int(folded.bytes[some].sum() + folded.indirect_bytes[some].sum())
    direct = int(folded.allocations[some].sum())
    indirect = int(folded.indirect_allocations[some].sum())
    return _columns(size(amount), number(direct), number(indirect))


def _before(group: Group, review: Review | None, style: Style) -> Iterator[str]:
    before = review.before.get(group.key) if review else None
    if review and before:
        known = f"{count(before.allocations, 'block')}, {size(before.bytes)}"
        text = f"      in {printable(review.baseline or '')} there were {known}"
        yield from layout.paragraph(text, "dim", style)


def _set_aside(result: LeakScan, style: Style) -> Iterator[str]:
    """Yield leaks that do not count: known from a baseline, or suppressed."""
    review, folded = result.review, result.folding
    if review is None:
        return
    known = review.standing == KNOWN
    if known.any():
        kinds = count(int(known.sum()), "kind")
        what = f"known from {review.baseline}, not grown: {kinds}"
        yield from layout.row(_sums(folded, known), printable(what), "dim", style)
    for index in sorted({*review.rule[review.standing == SUPPRESSED].tolist()}):
        rule = review.rules[index]
        what = f"suppressed by {rule.source}: {rule.reason or rule.text}"
        columns = _sums(folded, review.rule == index)
        yield from layout.row(columns, printable(what), "dim", style)


def _blocks(result: LeakScan) -> Iterator[str]:
    yield "every leaked block:"
    for block in result.blocks():
        sure = confidence.confidence(block.reason)
        yield (
            f"  {block.address:#018x}  {block.size:>10}  {block.kind:<8}  {sure:<8}  "
            f"kind {block.group + 1}"
        )
