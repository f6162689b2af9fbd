"""The findings of a scan by key: all that a comparison with another scan needs.

A census is taken from a scan, or read from a raw scan or a JSON report, which may come from
anywhere and is not trusted.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reachscan import errors
from reachscan.grouping import folding
from reachscan.judgement import NOTHING, Tally
from reachscan.recording import model, packing, wire
from reachscan.recording.wire_rows import text_of
from reachscan.recording.zip_equal import zip_equal
from reachscan.result import BlockAnswer, HeapScan, LeakScan, ScanResult
from reachscan.scanning import load_opened
from reachscan.wording import instant

LEAKS, HEAP = "leaks", "heap"
"""The subject of a census."""

REPORT_FORMATS, REPORT_VERSION = {"reachscan-report": LEAKS, "reachscan-heap": HEAP}, 1
_MAX_COUNT = 1 << 63
_JSON_BEGINS = (b"{", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Only a file that begins like this is read as a whole: any other may be of any size."""


@dataclass(frozen=True)
class Census:
    """The findings of a scan.

    Attributes:
        about: `LEAKS`, or `HEAP` for all live blocks.
        source: the file that it was read from, or another name for people.
        pid, program: id of the process, and path of its program.
        started: start of the scan, RFC 3339.
        method: how memory was captured.
        tallies: key -> its blocks and bytes.
        total: everything found, including groups that `tallies` lacks.
        unlisted: number of groups that a JSON report leaves out; their keys are unknown.
        host: where the process ran; None if the file does not say.
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
    host: model.Host | None = None

    def __repr__(self) -> str:
        """Return one line: there may be thousands of kinds."""
        return f"<Census of {self.source}: {len(self.tallies)} kinds of {self.about}>"


def take(scan: LeakScan | HeapScan, source: str) -> Census:
    """Return the census of a scan; `source` is its name for people."""
    totals = scan.recording.totals
    if isinstance(scan, HeapScan):
        return _taken(scan, source, HEAP, Tally(totals.allocations, totals.bytes))
    return _taken(scan, source, LEAKS, Tally(totals.leaked, totals.leaked_bytes))


def take_counted(scan: LeakScan, source: str) -> Census:
    """Return the census of a scan, with only the leaks that count."""
    return _taken(scan, source, LEAKS, scan.counted, scan.groups_counted)


def _taken(
    scan: LeakScan | HeapScan, source: str, about: str, total: Tally, number: int | None = None
) -> Census:
    recording, folded = scan.recording, scan.folding
    amounts = zip_equal(
        (folded.allocations + folded.indirect_allocations)[:number].tolist(),
        (folded.bytes + folded.indirect_bytes)[:number].tolist(),
    )
    return Census(
        about=about,
        source=source,
        pid=recording.target.pid,
        program=recording.target.exe,
        started=instant(recording.target.started),
        method=recording.snapshot.method,
        tallies=_sum(zip_equal(folding.keys(folded, number), [*map(Tally._make, amounts)])),
        total=total,
        host=recording.host,
    )


def read(path: Path) -> Census:
    """Read the census of a raw scan or a JSON report.

    Raises:
        OutputError: the file cannot be read.
        ReachscanError: it is neither, is damaged, or records a scan that failed.
    """
    source = text_of(os.fsencode(path))
    try:
        with packing.opened(path) as file:
            # Not read twice: it may be a pipe.
            head = file.peek(len(wire.MAGIC))[: len(wire.MAGIC)]
            if wire.MAGIC.startswith(head):
                return take(comparable(load_opened(file, path), source), source)
            if not head.lstrip().startswith(_JSON_BEGINS):
                raise _neither(path)
            text = file.read()
    except OSError as error:
        raise errors.OutputError(f"cannot read {path}: {error.strerror}") from error
    return _from_report(_parsed(text, path), source)


def comparable(result: ScanResult, source: str) -> LeakScan | HeapScan:
    """Return the scan, unless it is a question about one block.

    Raises:
        ReportFileError: it is a question about one block.
    """
    if isinstance(result, BlockAnswer):
        raise errors.ReportFileError(f"{source} describes a single block and cannot be compared")
    return result


def _sum(tallies: Iterable[tuple[str, Tally]]) -> dict[str, Tally]:
    sums: dict[str, Tally] = {}
    for key, tally in tallies:
        sums[key] = sums.get(key, NOTHING) + tally
    return sums


def _neither(path: Path) -> errors.ReportFileError:
    return errors.ReportFileError(f"{path} is neither a raw scan nor a JSON report of reachscan")


def _parsed(text: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise _neither(path) from error
    except ValueError as error:
        raise errors.ReportFileError(
            f"{path} begins like a JSON report, but was cut off or is damaged: {error}"
        ) from error
    # Any value can be compared with the names, but not every one be looked up among the keys.
    if not isinstance(document, dict) or document.get("format") not in tuple(REPORT_FORMATS):
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
            host=_host(document.get("host")),
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


def _host(value: Any) -> model.Host | None:
    # Reports of older versions do not say.
    return model.Host(_text(value["name"]), _text(value["boot_id"])) if value is not None else None


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise TypeError("one of its counts is none")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("one of its names is no text")
    return value
