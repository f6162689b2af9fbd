"""What programs use that import the package."""

from __future__ import annotations

import doctest
import os
import platform
from pathlib import Path
from typing import Any

import pytest
from conftest import StartVictim
from cores import gcore
from loading import load_leaks
from victims import build

import reachscan
from reachscan import BlockState, HeapScan, Reason, ScanOptions

FUNCTIONS = ("scan", "heap", "explain", "refs", "core", "load", "diff")


def test_everything_is_listed_and_says_how_it_is_used() -> None:
    assert {*FUNCTIONS, "ScanOptions", "LeakScan", "Reason"} <= set(dir(reachscan))
    assert all(hasattr(reachscan, name) for name in dir(reachscan))


@pytest.fixture
def scene(victim: StartVictim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what examples call by name: a process that leaks, and a leaked block of it."""
    monkeypatch.chdir(tmp_path)
    target = victim("containers", 1, 8)
    for name in ("day1.rsc", "day2.rsc"):
        reachscan.scan(target.pid, ScanOptions(save=name))
    address = int(load_leaks("day1.rsc").recording.leaks.address[0])
    return {"reachscan": reachscan, "victim": target, "pid": target.pid, "address": address}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_do_what_they_say(scene: dict[str, Any], tmp_path: Path, name: str) -> None:
    if name == "core":
        gcore(scene["victim"], tmp_path).rename("core.4711")
    text = getattr(reachscan, name).__doc__
    example = doctest.DocTestParser().get_doctest(text, scene, name, None, None)
    assert example.examples
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(example, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("kind", [str, Path])
def test_scans_are_saved_and_loaded_by_any_path(
    victim: StartVictim, tmp_path: Path, kind: type
) -> None:
    target, path = victim("containers", 1, 8), kind(tmp_path / "kept.rsc")
    found = reachscan.scan(target.pid, ScanOptions(save=path))
    again = load_leaks(path)
    assert again.groups(10) == found.groups(10) != []
    same = reachscan.diff(path, found)
    assert (same.changes, same.unchanged) == ((), 2)


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
        assert (answer.block.start, answer.block.state) == (lost, BlockState.LEAKED)


def parts(thing: Any) -> list[Any]:
    """Return a named tuple and all that it consists of."""
    below = thing if isinstance(thing, tuple) and hasattr(thing, "_fields") else ()
    return [thing, *(part for value in below for part in parts(value))]


def test_what_comes_back_is_small_to_print_and_has_names(victim: StartVictim) -> None:
    pid = victim("recycled_kinds", 300).pid
    found, live = reachscan.scan(pid), reachscan.heap(pid)
    for thing in (*parts(found), *parts(live), *found.groups(10), reachscan.diff(found, found)):
        if hasattr(thing, "_fields"):
            assert len(repr(thing)) < 1000, type(thing)
    assert isinstance(found.groups(1)[0].reason, Reason)
    assert isinstance(next(found.blocks()).reason, Reason)


def test_a_scan_tells_on_which_machine_it_was_made(victim: StartVictim) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    host = reachscan.scan(victim("containers", 1, 8).pid).recording.host
    assert host == (platform.node(), boot_id) == (os.uname().nodename, boot_id)
