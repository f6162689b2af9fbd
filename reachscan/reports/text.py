"""The report for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from reachscan import model
from reachscan.reports import Selection, Style, plain
from reachscan.reports.wording import count, duration, printable, size
from reachscan.scanning import ScanResult

WIDTH = 100
_DUMP_ROW = 16
_WHAT_COLUMN = 40


def lines(result: ScanResult, selection: Selection, style: Style = plain) -> Iterator[str]:
    """Yield the report line by line, without line ends.

    Args:
        result: what to report.
        selection: how much of it.
        style: adds colour.
    """
    recording = result.recording
    if recording.totals.leaked:
        yield style(_headline(recording), "headline")
        yield style(f"{_split(recording)}; {_how(recording)}", "dim")
        yield ""
        yield from _table(result, selection, style)
        if selection.every_block:
            yield ""
            yield from _blocks(result)
    else:
        yield style(_no_leaks(recording), "good")
        yield style(_how(recording), "dim")
    for warning in recording.warnings:
        yield ""
        yield from _warning(warning, style)


def _headline(recording: model.Recording) -> str:
    totals = recording.totals
    return (
        f"{_who(recording)}: {count(totals.leaked, 'leaked block')}, {size(totals.leaked_bytes)}, "
        f"of {totals.allocations} allocated{_allocators(recording)}"
    )


def _split(recording: model.Recording) -> str:
    totals = recording.totals
    indirect = size(totals.leaked_bytes - totals.direct_bytes)
    return (
        f"{totals.direct} direct ({size(totals.direct_bytes)}) "
        f"and {totals.leaked - totals.direct} indirect ({indirect})"
    )


def _no_leaks(recording: model.Recording) -> str:
    totals = recording.totals
    return (
        f"{_who(recording)}: no leaks: {count(totals.allocations, 'block')}, "
        f"{size(totals.bytes)}, all reachable{_allocators(recording)}"
    )


def _who(recording: model.Recording) -> str:
    return f"{printable(recording.target.name)} (pid {recording.target.pid})"


def _allocators(recording: model.Recording) -> str:
    names = ", ".join(dict.fromkeys(heap.allocator for heap in recording.heaps))
    return f" ({printable(names)})" if names else ""


def _how(recording: model.Recording) -> str:
    snapshot = recording.snapshot
    seconds = sum(ns for _, ns in snapshot.phases) / 1e9
    reason = f": {snapshot.reason}" if snapshot.reason else ""
    return (
        f"paused {duration(snapshot.pause_ns / 1e9)}, scanned in {duration(seconds)} "
        f"({printable(snapshot.method + reason)})"
    )


def _table(result: ScanResult, selection: Selection, style: Style) -> Iterator[str]:
    totals = result.recording.totals
    shown = result.groups(selection.limit)
    yield style(_row("bytes", "direct", "indirect", "size", "what nothing points to"), "dim")
    for group in shown:
        yield from _group(group, selection, style)
    hidden = len(result.folding.example) - len(shown)
    if hidden:
        yield _hidden(result, len(shown), hidden)
    rule = "-" * 10
    yield style(_row(rule, "-" * 8, "-" * 8, "", "").rstrip(), "dim")
    indirect = totals.leaked - totals.direct
    number = len(result.folding.example)
    what = f"{number} kinds" if number != 1 else "1 kind"
    yield _row(size(totals.leaked_bytes), str(totals.direct), str(indirect), "", f"in all, {what}")


def _row(amount: str, direct: str, indirect: str, each: str, what: str) -> str:
    return f"{amount:>10}  {direct:>8}  {indirect:>8}  {each:>6}  {what}"


def _group(group: model.Group, selection: Selection, style: Style) -> Iterator[str]:
    shape = f"{group.shape}: " if group.shape else ""
    what = printable(group.type or shape + group.signature or "a block of no words")
    first, *rest = textwrap.wrap(what, WIDTH - _WHAT_COLUMN) or [""]
    amount = size(group.bytes + group.indirect_bytes)
    columns = (amount, str(group.allocations), str(group.indirect_allocations), str(group.size))
    yield _row(*columns, style(first, "headline"))
    indent = " " * _WHAT_COLUMN
    for line in rest:
        yield indent + style(line, "headline")
    if group.type:
        for line in textwrap.wrap(printable(group.signature), WIDTH - _WHAT_COLUMN):
            yield indent + style(line, "dim")
    yield from _example(group.example, selection.contents, style)


def _example(example: model.Example, contents: int, style: Style) -> Iterator[str]:
    shown = example.contents[:contents]
    yield style(f"      for example at {example.address:#x}", "dim")
    for at in range(0, len(shown), _DUMP_ROW):
        row = shown[at : at + _DUMP_ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield style(f"        {at:08x}  {row.hex(' '):<47}  |{text}|", "dim")


def _hidden(result: ScanResult, shown: int, hidden: int) -> str:
    folded = result.folding
    rest = slice(shown, None)
    amount = int(folded.bytes[rest].sum() + folded.indirect_bytes[rest].sum())
    direct = int(folded.allocations[rest].sum())
    indirect = int(folded.indirect_allocations[rest].sum())
    kinds = f"{hidden} more kinds" if hidden != 1 else "1 more kind"
    what = f"{kinds}, shown by --limit {shown + hidden}"
    return _row(size(amount), str(direct), str(indirect), "", what)


def _blocks(result: ScanResult) -> Iterator[str]:
    leaks, group_of_leak = result.recording.leaks, result.folding.group_of_leak
    yield "every leaked block:"
    columns = zip(
        leaks.address.tolist(),
        leaks.size.tolist(),
        leaks.parent.tolist(),
        group_of_leak.tolist(),
        strict=True,
    )
    for address, block_size, parent, group in columns:
        kind = "direct" if parent == model.DIRECT else "indirect"
        yield f"  {address:#018x}  {block_size:>10}  {kind:<8}  kind {group + 1}"


def _warning(warning: model.Warning, style: Style) -> Iterator[str]:
    text = printable(f"warning: {warning.message} ({warning.code})")
    for line in textwrap.wrap(text, WIDTH, subsequent_indent="  "):
        yield style(line, "warning")
