"""A heap that is not understood hinders no other: it counts as in use, and is named."""

from __future__ import annotations

import json

import pytest
from conftest import StartVictim
from scans import leaked, run_cli
from victims import build

KINDS = {
    "own malloc": (["-DOWN_MALLOC"], "malloc of the program is not understood: "),
    "contradictory": ([], "the heap of musl is not understood (a group of slots is not where "),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_heaps_are_searched(victim: StartVictim, kind: str) -> None:
    flags, words = KINDS[kind]
    target = victim("foreign_heap", command=[str(build("foreign_heap", flags))])
    done = run_cli(["scan", target.pid, "--json", "--all"])
    assert done.status == 1, done.talk
    report = json.loads(done.out)
    scenes = {int(s["address"], 16): s["expected"] for s in target.ready["scenes"]}
    found = [int(address) for address in leaked(report)[:, 0]]
    assert found == [address for address, expected in scenes.items() if expected == "leak"]
    assert not report["complete"]
    (warning,) = report["warnings"]
    assert warning["code"] == "incomplete-heaps"
    assert warning["message"].startswith(words)
