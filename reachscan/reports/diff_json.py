"""The comparison of two scans for programs; schema/diff-v1.json describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reachscan import __version__
from reachscan.history.census import Census
from reachscan.history.comparison import Change, Comparison
from reachscan.reports import Selection, Style, plain

FORMAT = "reachscan-diff"
VERSION = 1


def lines(comparison: Comparison, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield the document, as one piece without a line end."""
    yield json.dumps(document(comparison, selection.limit), indent=2)


def document(comparison: Comparison, limit: int) -> dict[str, Any]:
    """Return the document that schema/diff-v1.json describes."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "reachscan": __version__,
        "old": _side(comparison.old),
        "new": _side(comparison.new),
        "by": comparison.by._asdict(),
        "grew": comparison.grew,
        "kinds": {what.value: number for what, number in comparison.numbers().items()}
        | {"unchanged": comparison.unchanged, "unclear": comparison.unclear},
        "changes": [changed(change) for change in comparison.changes[:limit]],
        "warnings": [{"code": w.code, "message": w.message} for w in comparison.warnings],
    }


def changed(change: Change) -> dict[str, Any]:
    """Return one change."""
    return {
        "what": change.what.value,
        "key": change.key,
        "old": change.old._asdict(),
        "new": change.new._asdict(),
    }


def _side(census: Census) -> dict[str, Any]:
    return {
        "about": census.about,
        "source": census.source,
        "host": census.host._asdict() if census.host else None,
        "pid": census.pid,
        "program": census.program,
        "started": census.started,
        "method": census.method,
        census.about: census.total._asdict(),
        "groups_left_out": census.unlisted,
    }
