"""The output of a watch for programs: one JSON document per event, one per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from reachscan.history.comparison import WORSE, Comparison
from reachscan.history.watching import Ended, Event, Failed, Scanned
from reachscan.reports import Selection, Style, plain
from reachscan.reports.diff_json import changed
from reachscan.wording import instant


def lines(event: Event, selection: Selection, _: Style = plain) -> Iterator[str]:
    """Yield an event as one line, with the kinds that grew most."""
    facts = {"time": instant(event.now), "pid": event.pid}
    if isinstance(event, Failed):
        yield json.dumps({"event": "failure", **facts, "error": event.error.sentence})
    elif isinstance(event, Ended):
        yield json.dumps({"event": "end", **facts, **_end(event)})
    else:
        yield json.dumps({"event": "scan", **facts, **_scan(event, selection.limit)})


def _scan(event: Scanned, limit: int) -> dict[str, Any]:
    worse = [c for c in event.change.changes if c.what in WORSE] if event.change else []
    return {
        "program": event.found.program,
        "pause_us": event.pause_ns // 1000,
        "leaks": event.found.total._asdict(),
        "suppressed": event.suppressed._asdict(),
        **_growth(event.change),
        "changes": [changed(change) for change in worse[:limit]],
    }


def _end(event: Ended) -> dict[str, Any]:
    return {
        "why": event.why.value,
        "scans": event.scans,
        "failures": event.failures,
        "seconds": round(event.seconds),
        "leaks": event.change.new.total._asdict() if event.change else None,
        **_growth(event.change),
    }


def _growth(change: Comparison | None) -> dict[str, Any]:
    return {
        "by": change.by._asdict() if change else None,
        "grew": change.grew if change else None,
    }
