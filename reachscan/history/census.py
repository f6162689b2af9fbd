"""What a scan found, by key: all that is needed to compare it with another scan.

A census is taken from a scan, or read from a file: a raw scan or a JSON report, which may come from
anywhere and is not trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reachscan import errors
from reachscan.grouping import folding
from reachscan.judgement import NOTHING, Tally
from reachscan.recording import wire
from reachscan.result import ScanResult
from reachscan.scanning import load
from reachscan.wording import instant

LEAKS, HEAP = "leaks", "heap"
"""What a census is about."""

REPORT_FORMATS, REPORT_VERSION = {"reachscan-report": LEAKS, "reachscan-heap": HEAP}, 1
_LARGEST_COUNT = 1 << 63


@dataclass(frozen=True)
class Census:
    """What a scan found.

    Attributes:
        about: `LEAKS`, or `HEAP` for all live blocks.
        source: file that it was read from, or what else people call it.
        pid, program: process and path of the program that was scanned.
        started: begin of the scan, RFC 3339.
        method: how memory was captured.
        tallies: key -> how much there is of it.
        total: all that was found, `tallies` and what is missing from them.
        unlisted: groups that a JSON report leaves out; their keys are not known.
    """

    about: str
    source: str
    pid: int
    program: str
    started: str
    method: str
    tallies: dict[str, Tally]
    total: Tally
    unlisted: int = 0


def take(result: ScanResult, source: str, *, counted: bool = False) -> Census:
    """Return the census of a scan.

    Args:
        result: the scan.
        source: what people shall call it.
        counted: leave out what does not count.

    Raises:
        ReportFileError: it was no scan but a question about one block.
    """
    recording, folded = result.recording, result.folding
    if recording.block is not None:
        raise errors.ReportFileError(f"{source} is about one block; there is nothing to compare")
    about = LEAKS if result.is_about_leaks else HEAP
    number = result.groups_counted if counted else len(folded.example)
    amounts = zip(
        (folded.allocations + folded.indirect_allocations)[:number].tolist(),
        (folded.bytes + folded.indirect_bytes)[:number].tolist(),
        strict=True,
    )
    totals = recording.totals
    total = Tally(totals.leaked, totals.leaked_bytes)
    if about == HEAP:
        total = Tally(totals.allocations, totals.bytes)
    return Census(
        about=about,
        source=source,
        pid=recording.target.pid,
        program=recording.target.exe,
        started=instant(recording.target.started),
        method=recording.snapshot.method,
        tallies=_sum(zip(folding.keys(folded, number), map(Tally._make, amounts), strict=True)),
        total=result.counted if counted and about == LEAKS else total,
    )


def read(path: Path) -> Census:
    """Read the census of a raw scan or a JSON report.

    Raises:
        OutputError: the file cannot be read.
        ReachscanError: it is neither, damaged, or tells of a scan that failed.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(wire.MAGIC))
            if head == wire.MAGIC or not head:
                return take(load(path), str(path))
            text = head + file.read()
    except OSError as error:
        raise errors.OutputError(f"cannot read {path}: {error.strerror}") from error
    return _from_report(_parsed(text, path), str(path))


def _sum(tallies: Iterable[tuple[str, Tally]]) -> dict[str, Tally]:
    sums: dict[str, Tally] = {}
    for key, tally in tallies:
        sums[key] = sums.get(key, NOTHING) + tally
    return sums


def _parsed(text: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise errors.ReportFileError(
            f"{path} is neither a raw scan nor a JSON report of reachscan"
        ) from error
    if not isinstance(document, dict) or document.get("format") not in REPORT_FORMATS:
        raise errors.ReportFileError(f"{path} is JSON, but no report of a scan")
    if document.get("version") != REPORT_VERSION:
        raise errors.ReportFileError(
            f"{path} has version {document.get('version')!r} of the report format, "
            f"and this reachscan reads version {REPORT_VERSION}"
        )
    return document


def _from_report(document: dict[str, Any], source: str) -> Census:
    try:
        target, snapshot = document["target"], document["snapshot"]
        about = REPORT_FORMATS[document["format"]]
        groups = document["groups"]
        return Census(
            about=about,
            source=source,
            pid=_count(target["pid"]),
            program=_text(target["exe"]),
            started=_text(snapshot["started"]),
            method=_text(snapshot["method"]),
            tallies=_sum((_text(group["key"]), _tally(group, about)) for group in groups),
            total=Tally(_count(document[about]["allocations"]), _count(document[about]["bytes"])),
            unlisted=max(0, _count(document["groups_total"]) - len(groups)),
        )
    except KeyError as error:
        raise errors.ReportFileError(f"{source} is damaged: it has no {error.args[0]!r}") from error
    except (TypeError, AttributeError) as error:
        raise errors.ReportFileError(f"{source} is damaged: {error}") from error


def _tally(group: dict[str, Any], about: str) -> Tally:
    direct = Tally(_count(group["allocations"]), _count(group["bytes"]))
    if about == HEAP:
        return direct
    return direct + Tally(_count(group["indirect_allocations"]), _count(group["indirect_bytes"]))


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _LARGEST_COUNT:
        raise TypeError("one of its counts is none")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("one of its names is no text")
    return value
