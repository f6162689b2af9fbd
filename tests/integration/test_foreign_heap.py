"""A heap that is not understood hinders no other: it counts as in use, and is named."""

from __future__ import annotations

import json

import pytest
from conftest import StartVictim
from provisions import provide_all
from scans import FAILED, leaked, run_cli
from victims import build

KINDS = {
    "own malloc": (["-DOWN_MALLOC"], "malloc of the program is not understood: "),
    "contradictory": ([], "the heap of musl is not understood (a group of slots is not where "),
}


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_old_scudo_is_refused_by_name(victim: StartVictim, method: str) -> None:
    """That of Clang 14's own option is an older one. No report says that nothing leaks."""
    provide_all("clang libclang-rt-14-dev")
    program = build("leak_graph", ["-fsanitize=scudo"], "clang")
    target = victim("leak_graph", "/dev/null", 100, 10, command=[str(program)])
    done = run_cli(["scan", target.pid, "--method", method])
    assert done.status == FAILED, done.out
    assert "malloc is provided by a form of Scudo that is not understood" in " ".join(
        done.talk.split()
    )


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
