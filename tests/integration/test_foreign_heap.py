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


SCUDO: dict[str, str | None] = {
    "preloaded": "/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/"
    "libclang_rt.scudo_standalone-x86_64.so",
    "linked into the program": None,
}


@pytest.mark.parametrize("method", ["clone", "copy"])
@pytest.mark.parametrize("where", SCUDO)
def test_scudo_is_refused_by_name(victim: StartVictim, where: str, method: str) -> None:
    """Android's allocator. It hides from no search: no report says that nothing leaks."""
    provide_all("clang libclang-rt-14-dev")
    library = SCUDO[where]
    linked = [] if library else ["-fsanitize=scudo"]
    program = build("leak_graph", linked, None if library else "clang")
    environment = {"LD_PRELOAD": library} if library else {}
    target = victim(
        "leak_graph", "/dev/null", 100, 10, command=[str(program)], environment=environment
    )
    done = run_cli(["scan", target.pid, "--method", method])
    assert done.status == FAILED, done.out
    assert "malloc is provided by Scudo, which is not understood" in " ".join(done.talk.split())


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
