"""Leaks of every shape are found exactly, and told apart into direct and indirect ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartVictim
from scans import leaked, run_cli, scan
from unharmed import METHODS
from victims import KIND_DIRECT, KIND_FIRST_RING, KIND_INDIRECT, Truth, command_on, read_truth


def assert_same_leaks(report: dict[str, Any], truth: Truth) -> None:
    found = leaked(report)
    missed = np.setdiff1d(truth[:, 0], found[:, 0])
    wrong = np.setdiff1d(found[:, 0], truth[:, 0])
    assert len(missed) == 0, f"{len(missed)} leaks missed: {[hex(a) for a in missed[:20]]}"
    assert len(wrong) == 0, f"{len(wrong)} live blocks reported: {[hex(a) for a in wrong[:20]]}"
    assert np.array_equal(found[:, 1], truth[:, 1]), "sizes differ"
    for kind in (KIND_DIRECT, KIND_INDIRECT):
        chosen = truth[:, 2] == kind
        other = truth[chosen & (found[:, 2] != kind)]
        assert len(other) == 0, f"not kind {kind}: {[hex(a) for a in other[:20, 0]]}"
    in_ring = truth[:, 2] >= KIND_FIRST_RING
    heads = np.unique(truth[in_ring & (found[:, 2] == KIND_DIRECT), 2], return_counts=True)
    assert len(heads[0]) == len(np.unique(truth[in_ring, 2])), "a ring has no head"
    assert np.all(heads[1] == 1), "a ring has several heads"


def assert_sums(report: dict[str, Any], truth: Truth) -> None:
    leaks, groups = report["leaks"], report["groups"]
    assert leaks["allocations"] == len(truth)
    assert leaks["bytes"] == int(truth[:, 1].sum())
    for group_key, total in (
        ("allocations", "direct_allocations"),
        ("bytes", "direct_bytes"),
    ):
        direct = sum(group[group_key] for group in groups)
        indirect = sum(group[f"indirect_{group_key}"] for group in groups)
        assert direct == leaks[total]
        assert direct + indirect == leaks[group_key]


@pytest.mark.parametrize(("blocks", "percent"), [(200, 100), (2000, 50), (100_000, 10)])
def test_known_graph(victim: StartVictim, truth: Path, blocks: int, percent: int) -> None:
    target = victim("leak_graph", truth, blocks, percent)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    assert_sums(report, read_truth(truth))


def test_no_leaks(victim: StartVictim, truth: Path) -> None:
    target = victim("leak_graph", truth, 20_000, 0)
    report = scan(target.pid)
    assert report["leaks"]["allocations"] == 0
    assert report["heap"]["allocations"] >= 20_000


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("method", ["clone", "copy"])
def test_a_million_blocks(victim: StartVictim, truth: Path, method: str, threads: int) -> None:
    target = victim("leak_graph", truth, 1_000_000, 1)
    report = scan(target.pid, "--all", "--method", method, "--threads", threads)
    assert_same_leaks(report, read_truth(truth))


@pytest.mark.parametrize("method", METHODS)
def test_every_method(victim: StartVictim, truth: Path, method: str) -> None:
    target = victim("leak_graph", truth, 5000, 20)
    report = scan(target.pid, "--all", "--method", method)
    assert report["snapshot"]["method"] == method
    assert_same_leaks(report, read_truth(truth))


@pytest.mark.parametrize("suite", ["bullseye", "trixie", "sid"])
@pytest.mark.parametrize("method", ["clone", "live"])
def test_other_glibc(victim: StartVictim, truth: Path, method: str, suite: str) -> None:
    target = victim("leak_graph", truth, 20_000, 10, command=command_on(suite, "leak_graph"))
    assert_same_leaks(scan(target.pid, "--all", "--method", method), read_truth(truth))


@pytest.mark.parametrize(("suite", "release"), [("xenial", "2.23"), ("bionic", "2.27")])
def test_older_glibc(victim: StartVictim, truth: Path, suite: str, release: str) -> None:
    target = victim("leak_graph", truth, 20_000, 10, command=command_on(suite, "leak_graph"))
    report = scan(target.pid, "--all")
    assert_same_leaks(report, read_truth(truth))
    assert report["target"]["allocators"] == [f"glibc {release}"]
    assert report["complete"]


def test_saved_stream_tells_the_same(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    target = victim("leak_graph", truth, 3000, 20)
    saved = tmp_path / "scan.rsc"
    direct = run_cli(["scan", target.pid, "--json", "--save", saved])
    target.quit()
    later = run_cli(["report", saved, "--json"])
    assert (direct.status, later.status) == (1, 1)
    assert later.out == direct.out


def test_types_of_a_stripped_program(victim: StartVictim) -> None:
    target = victim("leaky_sessions", "once")
    report = scan(target.pid)
    # Lists point back into the session that owns them: a session must stand for its ring.
    leaked_sessions = {g["type"]: g["allocations"] for g in report["groups"] if g["type"]}
    assert leaked_sessions == {"shop::SecureSession": 100, "shop::PlainSession": 300}
    assert report["leaks"]["direct_allocations"] == 400
