"""A recorder in programs with other C libraries, whose functions begin with other instructions."""

from __future__ import annotations

import json

import pytest
from attached import assert_served, code, functions, imported_functions
from conftest import StartVictim
from glibc_suites import LOADER
from provisions import provide_all
from scans import run_cli, scan
from victims import build, command_on, glibc_of, need


def start_server(library: str) -> str:
    """Return a program with this C library that was not started by an explicit call of a loader."""
    if library == "musl":
        provide_all("musl musl-dev")
        # What Alpine's compiler passes, and Debian's wrapper forgets.
        flags = ["-Wl,--eh-frame-hdr"]
        return str(build("serving", flags, need("musl-gcc", "musl-tools")))
    folder = glibc_of(library).libraries
    flags = [f"-Wl,--dynamic-linker={folder / LOADER}", f"-Wl,--disable-new-dtags,-rpath={folder}"]
    return command_on(library, "serving", flags)[-1]


@pytest.mark.parametrize("library", ["bullseye", "trixie", "sid", "musl"])
def test_another_c_library(victim: StartVictim, library: str) -> None:
    server = victim("serving", 1, 300, command=[start_server(library)])
    words, machine_code = imported_functions(server.pid), code(server.pid)
    attached = json.loads(run_cli(["attach", server.pid, "--json"]).out)
    assert (attached["modules"], attached["not_hooked"]) == (0, 0)  # all at their entries
    report = scan(server.pid)
    names = {tuple(functions(report, group)[:3]) for group in report["groups"]}
    assert ("lose_session", "answer", "run") in names
    assert json.loads(run_cli(["detach", server.pid, "--json"]).out)["kept_bytes"] == 0
    assert (imported_functions(server.pid), code(server.pid)) == (words, machine_code)
    assert_served(server)
