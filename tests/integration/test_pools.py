"""Pools of a program's own, which it tells libreachscan about: their objects are allocations."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cores import gcore
from libraries import ENVIRONMENT, LINKING
from scans import leaked, run_cli, scan
from test_core import scan_core
from victims import DEADLINE, Victim, build, running


def program(form: str) -> str:
    return str(build("pools", LINKING[form]))


@pytest.fixture(scope="module", params=LINKING)
def pools(request: pytest.FixtureRequest) -> Iterator[Victim]:
    with running([program(request.param), "outside"], ENVIRONMENT) as victim:
        yield victim


def truth(victim: Victim) -> list[tuple[int, int]]:
    return sorted((int(address, 16), size) for address, size in victim.ready["lost"])


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_a_scan_from_outside_finds_lost_objects(pools: Victim, method: str) -> None:
    report = scan(pools.pid, "--all", "--method", method)
    assert [(int(a), int(s)) for a, s, _ in leaked(report)] == truth(pools)
    assert report["target"]["allocators"][-1] == "pools"
    assert report["warnings"] == []


def test_the_heap_is_what_is_in_use(pools: Victim) -> None:
    """No block is counted twice, as one of malloc and as memory of a pool."""
    report = scan(pools.pid)
    assert report["heap"]["allocations"] > len(truth(pools))
    done = run_cli(["heap", pools.pid, "--json"])
    assert done.status == 0, done.talk


def test_a_core_file_tells_the_same(pools: Victim, tmp_path: Path) -> None:
    report = scan_core(gcore(pools, tmp_path), "--all")
    assert [(int(a), int(s)) for a, s, _ in leaked(report)] == truth(pools)


def test_an_object_is_explained(pools: Victim) -> None:
    lost = np.array(pools.ready["lost"])
    answer = run_cli(["explain", pools.pid, str(lost[0][0])])
    assert answer.status == 0
    assert "it is leaked" in answer.out and "a pool of the program's own" in answer.out


@pytest.mark.parametrize("form", LINKING)
@pytest.mark.parametrize("scene", ["inside", "spoilt"])
def test_the_program_finds_them_itself(form: str, scene: str) -> None:
    done = subprocess.run(
        [program(form), scene],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
