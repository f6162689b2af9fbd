"""A recorder in programs without a loader: the functions of their allocator lead to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attached import Surroundings, assert_served, code, functions
from conftest import StartVictim
from provisions import provide_all
from scans import run_cli, scan
from victims import build, need


def start_server(kind: str) -> list[str]:
    if kind == "musl":
        provide_all("musl musl-dev")
        return [str(build("serving", ["-static"], need("musl-gcc", "musl-tools")))]
    return [str(build("serving", [kind]))]


@pytest.mark.parametrize("kind", ["-static", "-static-pie", "musl"])
def test_a_static_program(victim: StartVictim, kind: str) -> None:
    server = victim("serving", 1, 300, command=start_server(kind))
    surroundings = Surroundings(server.pid)
    machine_code = code(server.pid)
    attached = json.loads(run_cli(["attach", server.pid, "--json"]).out)
    assert (attached["modules"], attached["not_hooked"]) == (0, 0)
    assert code(server.pid) != machine_code
    report = scan(server.pid)
    names = {tuple(functions(report, group)[:3]) for group in report["groups"]}
    assert ("lose_session", "answer", "run") in names
    detached = json.loads(run_cli(["detach", server.pid, "--json"]).out)
    assert detached["kept_bytes"] == 0
    assert code(server.pid) == machine_code
    if kind != "musl":  # which maps and unmaps as it works
        surroundings.assert_same()
    assert_served(server)


def test_a_function_of_the_programs_own_that_is_named_like_the_allocators(
    victim: StartVictim, tmp_path: Path
) -> None:
    """The linker keeps both, as one of them is local."""
    own = tmp_path / "own.c"
    own.write_text("__attribute__((used)) static int free(int n) { return n + 1; }\n")
    hooks = []
    for sources in ([], [str(own)]):
        server = [str(build("serving", ["-static", "-fno-builtin", *sources]))]
        pid = victim("serving", 1, 300, command=server).pid
        hooks.append(json.loads(run_cli(["attach", pid, "--json"]).out)["hooks"])
    assert hooks[0] == hooks[1] > 0
