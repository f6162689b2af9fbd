"""What programs use that import the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import StartVictim

import reachscan
from reachscan import ScanOptions
from reachscan.recording import model


def test_everything_is_listed_and_says_how_it_is_used() -> None:
    assert {"scan", "heap", "explain", "load"} <= set(dir(reachscan))
    for function in (reachscan.scan, reachscan.heap, reachscan.explain, reachscan.load):
        assert f"reachscan.{function.__name__}(" in (function.__doc__ or "")
    assert all(hasattr(reachscan, name) for name in dir(reachscan))


@pytest.mark.parametrize("kind", [str, Path])
def test_scans_are_saved_and_loaded_by_any_path(
    victim: StartVictim, tmp_path: Path, kind: type
) -> None:
    target, path = victim("containers", 1, 8), kind(tmp_path / "kept.rsc")
    found = reachscan.scan(target.pid, ScanOptions(save=path))
    again = reachscan.load(path)
    assert again.groups(10) == found.groups(10) != []


def test_questions_have_answers(victim: StartVictim) -> None:
    pid = victim("containers", 1, 8).pid
    live = reachscan.heap(pid).recording
    assert live.kinds is not None and live.kinds.count.sum() == live.totals.allocations
    lost = int(reachscan.scan(pid).recording.leaks.address[0])
    block = reachscan.explain(pid, lost).recording.block
    assert block is not None and (block.start, block.state) == (lost, model.LEAKED)
