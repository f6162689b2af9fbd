"""The report for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reachscan import model
from reachscan.reports import Selection, Style, doubts, parts, plain
from reachscan.reports.parts import WIDTH
from reachscan.reports.wording import (
    count,
    cut,
    exact_size,
    number,
    printable,
    size,
    wrap,
)
from reachscan.scanning import ScanResult

_DETAILS = 6
"""Rows of the tree and of the sizes of a group."""


def lines(result: ScanResult, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield the report line by line, without line ends.

    Args:
        result: what to report.
        selection: how much of it.
        style: adds colour.
    """
    recording = result.recording
    if recording.totals.leaked:
        yield from parts.paragraph(_headline(recording), "headline", style)
        yield from parts.paragraph(f"{_split(recording)}; {parts.how(recording)}", "dim", style)
        yield from parts.paragraph(_possible(result), "warning", style)
        yield ""
        yield from _table(result, selection, style)
        if selection.every_block:
            yield ""
            yield from _blocks(result)
    else:
        yield from parts.paragraph(_no_leaks(recording), "good", style)
        yield from parts.paragraph(parts.how(recording), "dim", style)
    yield from parts.warnings(recording, style)


def _headline(recording: model.Recording) -> str:
    totals = recording.totals
    return (
        f"{parts.who(recording)}: {count(totals.leaked, 'leaked block')}, "
        f"{size(totals.leaked_bytes)}, "
        f"of {totals.allocations} allocated{parts.allocators(recording)}"
    )


def _split(recording: model.Recording) -> str:
    totals = recording.totals
    indirect = size(totals.leaked_bytes - totals.direct_bytes)
    return (
        f"{totals.direct} direct ({size(totals.direct_bytes)}) "
        f"and {totals.leaked - totals.direct} indirect ({indirect})"
    )


def _possible(result: ScanResult) -> str:
    leaks, amount = result.possible
    return f"of these, {count(leaks, 'block')} ({size(amount)}) only possibly leaked" * (leaks > 0)


def _no_leaks(recording: model.Recording) -> str:
    totals = recording.totals
    return (
        f"{parts.who(recording)}: no leaks: {count(totals.allocations, 'block')}, "
        f"{size(totals.bytes)}, all reachable{parts.allocators(recording)}"
    )


def _table(result: ScanResult, selection: Selection, style: Style) -> Iterator[str]:
    totals = result.recording.totals
    shown = result.groups(selection.limit, _DETAILS)
    header = _columns("bytes", "direct", "indirect", "size")
    yield style(f"{header}what nothing points to", "dim")
    for group in shown:
        yield from _group(group, selection, style)
    hidden = len(result.folding.example) - len(shown)
    if hidden:
        yield _hidden(result, len(shown), hidden)
    yield style(_columns("-" * 10, "-" * 8, "-" * 8).rstrip(), "dim")
    kinds = count(len(result.folding.example), "kind")
    indirect = totals.leaked - totals.direct
    columns = _columns(size(totals.leaked_bytes), number(totals.direct), number(indirect))
    yield f"{columns}in all, {kinds}"


def _columns(amount: str, direct: str, indirect: str, each: str = "") -> str:
    return f"{amount:>10}  {direct:>8}  {indirect:>8}  {each:>8}  "


def _group(group: model.Group, selection: Selection, style: Style) -> Iterator[str]:
    columns = _columns(
        size(group.bytes + group.indirect_bytes),
        number(group.allocations),
        number(group.indirect_allocations),
        exact_size(group.size) if len(group.sizes) == 1 else "varies",
    )
    first, *rest = list(_what(group, WIDTH - len(columns), style))
    yield columns + first
    for line in rest:
        yield " " * len(columns) + line
    yield from _tree(group.tree)
    yield from parts.example(group.example, selection.contents, style)


def _what(group: model.Group, width: int, style: Style) -> Iterator[str]:
    """Yield what is known of the direct leaks themselves."""
    shape = f"{group.shape}: " if group.shape else ""
    what = printable(group.type or shape + group.signature or "a block of no words")
    texts = [(what, "headline")]
    if group.type:
        texts.append((printable(group.signature), "dim"))
    if group.reason != model.DEFINITE:
        texts.append((f"possible: {doubts.in_words(group.reason)}", "warning"))
    if len(group.sizes) > 1:
        texts.append((_sizes(group.sizes), "dim"))
    for text, kind in texts:
        for line in wrap(text, width):
            yield style(line, kind)


def _sizes(sizes: Sequence[model.SizeCount]) -> str:
    rows = [
        f"{number(row.allocations)} of {'other sizes' if row.size is None else f'{row.size} bytes'}"
        for row in sizes
    ]
    return ", ".join(rows)


def _tree(branches: Sequence[model.Branch], guide: str = "") -> Iterator[str]:
    for branch in branches:
        is_last = branch is branches[-1]
        each = "varies" if branch.smallest != branch.largest else exact_size(branch.smallest or 0)
        name = branch.name or count(branch.kinds, "more kind")
        columns = _columns(
            size(branch.bytes), "", number(branch.allocations), each if branch.name else ""
        )
        yield columns + cut(
            f"{guide}{'└' if is_last else '├'} {printable(name)}", WIDTH - len(columns)
        )
        yield from _tree(branch.below, f"{guide}{' ' if is_last else '│'} ")


def _hidden(result: ScanResult, shown: int, hidden: int) -> str:
    folded = result.folding
    rest = slice(shown, None)
    amount = int(folded.bytes[rest].sum() + folded.indirect_bytes[rest].sum())
    direct = int(folded.allocations[rest].sum())
    indirect = int(folded.indirect_allocations[rest].sum())
    what = f"{count(hidden, 'more kind')}, shown by --limit {shown + hidden}"
    return _columns(size(amount), number(direct), number(indirect)) + what


def _blocks(result: ScanResult) -> Iterator[str]:
    leaks, group_of_leak = result.recording.leaks, result.folding.group_of_leak
    yield "every leaked block:"
    columns = zip(
        leaks.address.tolist(),
        leaks.size.tolist(),
        leaks.parent.tolist(),
        leaks.reason.tolist(),
        group_of_leak.tolist(),
        strict=True,
    )
    for address, block_size, parent, reason, group in columns:
        kind = "direct" if parent == model.DIRECT else "indirect"
        sure = doubts.confidence(reason)
        yield f"  {address:#018x}  {block_size:>10}  {kind:<8}  {sure:<8}  kind {group + 1}"
