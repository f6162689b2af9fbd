"""Profiles for speedscope (https://www.speedscope.app), in its own JSON format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reachscan.recording.origins import Frame
from reachscan.reports import Selection, Style, plain
from reachscan.reports.profile import UNKNOWN, Names, Scan, samples
from reachscan.wording import printable

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_UNITS = {"bytes": "bytes", "count": "none"}


def lines(scan: Scan, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield the document, as one piece without a line end."""
    names, table = Names(scan.recording), _Frames()
    stacks, weights = [], []
    for sample in samples(scan):
        thread = names.thread(sample.thread) if selection.per_thread else ""
        outwards = [table.index(frame) for frame in names.frames(sample.stack)]
        outermost = [table.named(thread)] if thread else []
        stacks.append([*outermost, *(outwards[::-1] or [table.named(UNKNOWN)])])
        weights.append(sample.weight(selection))
    title = f"{scan.recording.target.name}: {scan.subject}"
    profile = {
        "type": "sampled",
        "name": printable(title),
        "unit": _UNITS[selection.weight],
        "startValue": 0,
        "endValue": sum(weights),
        "samples": stacks,
        "weights": weights,
    }
    document = {
        "$schema": SCHEMA,
        "exporter": "reachscan",
        "name": printable(title),
        "activeProfileIndex": 0,
        "shared": {"frames": table.rows},
        "profiles": [profile],
    }
    yield json.dumps(document)


class _Frames:
    """The frames, which samples refer to by position."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._index: dict[tuple[object, ...], int] = {}

    def index(self, frame: Frame) -> int:
        return self._add(printable(frame.label), frame.file, frame.line)

    def named(self, name: str) -> int:
        return self._add(printable(name), None, None)

    def _add(self, name: str, file: str | None, line: int | None) -> int:
        key = (name, file, line)
        if key not in self._index:
            self._index[key] = len(self.rows)
            self.rows.append(
                {"name": name}
                | ({"file": printable(file)} if file else {})
                | ({"line": line} if line else {})
            )
        return self._index[key]
