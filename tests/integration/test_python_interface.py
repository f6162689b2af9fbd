"""What programs use that import the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import StartVictim
from loading import load_leaks
from victims import build

import reachscan
from reachscan import HeapScan, ScanOptions
from reachscan.recording import model


def test_everything_is_listed_and_says_how_it_is_used() -> None:
    assert {"scan", "heap", "explain", "refs", "load"} <= set(dir(reachscan))
    functions = (reachscan.scan, reachscan.heap, reachscan.explain, reachscan.refs, reachscan.load)
    for function in functions:
        assert f"reachscan.{function.__name__}(" in (function.__doc__ or "")
    assert all(hasattr(reachscan, name) for name in dir(reachscan))


@pytest.mark.parametrize("kind", [str, Path])
def test_scans_are_saved_and_loaded_by_any_path(
    victim: StartVictim, tmp_path: Path, kind: type
) -> None:
    target, path = victim("containers", 1, 8), kind(tmp_path / "kept.rsc")
    found = reachscan.scan(target.pid, ScanOptions(save=path))
    again = load_leaks(path)
    assert again.groups(10) == found.groups(10) != []


def test_a_heap_without_blocks_is_one_when_it_is_read_again(
    victim: StartVictim, tmp_path: Path
) -> None:
    target = victim("bare", command=[str(build("bare", ["-nostdlib", "-static"]))])
    kept = tmp_path / "kept.rsc"
    assert len(reachscan.heap(target.pid, ScanOptions(save=kept)).kinds.size) == 0
    assert isinstance(reachscan.load(kept), HeapScan)


def test_questions_have_answers(victim: StartVictim) -> None:
    pid = victim("containers", 1, 8).pid
    live = reachscan.heap(pid)
    assert live.kinds.count.sum() == live.recording.totals.allocations
    lost = int(reachscan.scan(pid).recording.leaks.address[0])
    for answer in (reachscan.explain(pid, lost), reachscan.refs(pid, lost)):
        assert (answer.block.start, answer.block.state) == (lost, model.LEAKED)
