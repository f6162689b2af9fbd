"""Target and scan in one memory control group, as by `docker exec`: the target does not pay."""

from __future__ import annotations

import os

import pytest
from conftest import StartVictim
from groups import control_group, entering, limit_memory
from scans import FAILED, run_cli
from victims import build
from worlds import need_root

ROUNDS = int(os.environ.get("REACHSCAN_GROUP_SCANS", "3"))
MEGABYTES = 150
TIGHT, ROOMY = 220 << 20, 600 << 20

pytestmark = need_root


@pytest.mark.parametrize("method", ["auto", "clone", "copy"])
def test_the_target_outlives_scans(victim: StartVictim, method: str) -> None:
    """It writes to all of its memory meanwhile; there is room for that once, but not twice."""
    program = str(build("large"))
    with control_group("memory") as group:
        limit_memory(group, TIGHT)
        command = [*entering(group), program, str(MEGABYTES), "restless"]
        target = victim("large", command=command)
        for _ in range(ROUNDS):
            done = run_cli([target.pid, "--method", method], prefix=entering(group))
            print(f"status {done.status}: {done.talk}")
            assert target.process.poll() is None, "the target was killed"
            assert done.status in (0, FAILED, -9), "neither served nor refused"
        target.quit()


def test_a_copy_that_does_not_fit_is_not_begun(victim: StartVictim) -> None:
    with control_group("memory") as group:
        limit_memory(group, TIGHT)
        target = victim("large", command=[*entering(group), str(build("large")), str(MEGABYTES)])
        done = run_cli([target.pid, "--method", "copy"], prefix=entering(group))
        assert done.status == FAILED
        assert "a copy of process" in done.talk and "memory left" in done.talk
        target.quit()


def test_a_copy_that_fits_is_made(victim: StartVictim) -> None:
    with control_group("memory") as group:
        limit_memory(group, ROOMY)
        target = victim("large", command=[*entering(group), str(build("large")), str(MEGABYTES)])
        done = run_cli([target.pid, "--method", "copy"], prefix=entering(group))
        assert done.status == 0, done.talk
        target.quit()
