"""Common parts of JSON documents: what was scanned, how, and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reachscan import __version__
from reachscan.grouping.groups import Example
from reachscan.recording import model
from reachscan.recording.architectures import ARCHITECTURES
from reachscan.reports import stacks
from reachscan.wording import instant

INCOMPLETE = "incomplete"


def facts(recording: model.Recording) -> dict[str, Any]:
    """Return what was scanned, where and how, and the program that wrote the report."""
    return {
        "reachscan": __version__,
        "host": recording.host._asdict() if recording.host else None,
        "target": _target(recording),
        "snapshot": _snapshot(recording.snapshot, recording.target.started),
    }


def caveats(warnings: Sequence[model.Warning]) -> dict[str, Any]:
    """Return the warnings."""
    return {
        "warnings": [{"code": w.code, "message": w.message} for w in warnings],
        "complete": is_complete(warnings),
    }


def is_complete(warnings: Sequence[model.Warning]) -> bool:
    """Return whether the scan saw everything that it should have seen."""
    return not any(warning.code.startswith(INCOMPLETE) for warning in warnings)


def _target(recording: model.Recording) -> dict[str, Any]:
    target, known = recording.target, ARCHITECTURES.get(recording.machine)
    return {
        "pid": target.pid,
        "name": target.name,
        "exe": target.exe,
        "command": list(target.command),
        "arch": known.name if known else "unknown",
        "page_size": recording.page_size,
        "threads": target.threads,
        "allocators": list(dict.fromkeys(heap.allocator for heap in recording.heaps)),
        "recorder": stacks.recorder(recording.recorder),
    }


def _snapshot(snapshot: model.Snapshot, started: int) -> dict[str, Any]:
    phases: dict[str, int] = {}
    for name, ns in snapshot.phases:
        phases[name] = phases.get(name, 0) + ns
    return {
        "method": snapshot.method,
        "reason": snapshot.reason,
        "pause_us": snapshot.pause_ns // 1000,
        "started": instant(started),
        "phases_us": {name: ns // 1000 for name, ns in phases.items()},
    }


def example(example: Example, contents: int) -> dict[str, Any]:
    """Return the example of a group, with this many of its first bytes."""
    return {
        "address": f"{example.address:#x}",
        "size": example.size,
        "contents": example.contents[:contents].hex(),
    }
