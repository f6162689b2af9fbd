"""The target's user may write to the clone's memory; then the scan fails, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import hostile_helper
import pytest
from conftest import StartVictim
from scans import FAILED, assert_let_go, relatives, run_cli

TAMPERED = "cannot come from a sweep"
MISDEEDS = {
    "send_without_end": (60, TAMPERED),
    "claim_suspects": (60, TAMPERED),
    "send_from_elsewhere": (60, TAMPERED),
    "add_threads": (60, TAMPERED),
    "ask_without_end": (2, "the search did not end in time"),
}
"""What the clone does; how many seconds a scan has, and why it fails."""
LITTLE_MEMORY = ("prlimit", f"--as={1 << 31}")


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_a_clone_that_was_tampered_with(
    victim: StartVictim, truth: Path, tmp_path: Path, misdeed: str
) -> None:
    target = victim("leak_graph", truth, 100, 10)
    before = relatives(target.pid)
    environment = {"REACHSCAN_HELPER": str(hostile_helper.make(tmp_path, misdeed))}
    seconds, why = MISDEEDS[misdeed]
    options = ["--method", "clone", "--timeout", seconds]
    done = run_cli(["scan", target.pid, *options], environment, LITTLE_MEMORY)
    assert done.status == FAILED, done.talk
    assert why in done.talk
    assert done.talk.count("\n") == 1
    assert_let_go(target.pid, before)
