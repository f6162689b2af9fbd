"""Reports say how much of the memory was searched for leaks, and warn if that is little."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import run_cli, scan
from unharmed import METHODS

MIB = 1 << 20
SLACK = MIB
"""More than the stack, the modules and the heap of a fixture program have written to."""


@pytest.mark.parametrize("method", METHODS)
def test_a_tiny_heap_beside_large_memory_is_no_clean_bill(victim: StartVictim, method: str) -> None:
    target = victim("beside_heap", 24 * MIB, 512 * MIB, 40 * MIB)
    report = scan(target.pid, "--method", method)
    memory = report["memory"]
    kinds = [memory[f"{kind}_bytes"] for kind in ("heap", "anonymous", "stack", "module", "file")]
    assert memory["bytes"] == sum(kinds)
    # Neither what is only reserved nor what is shared counts.
    assert 24 * MIB <= memory["anonymous_bytes"] < 24 * MIB + SLACK
    assert 0 < memory["heap_bytes"] < SLACK
    assert 0 < memory["stack_bytes"] < SLACK
    largest = memory["largest"][0]
    assert largest["kind"] == "anonymous" and largest["bytes"] >= 24 * MIB
    assert "memory-outside-heap" in [warning["code"] for warning in report["warnings"]]


def test_every_report_says_so_also_of_a_saved_scan(victim: StartVictim, tmp_path: Path) -> None:
    target = victim("beside_heap", 24 * MIB, MIB, MIB)
    saved = tmp_path / "saved.rsc"
    live = run_cli(["scan", target.pid, "--save", saved])
    assert live.status == 0
    text = run_cli(["report", saved]).out
    assert text == live.out
    joined = " ".join(text.split())
    assert re.search(r"; glibc's heap is .* KiB of 24\.\d MiB of private memory", joined)
    assert "searched for pointers, not for leaks: 24.0 MiB anonymous, " in joined
    assert joined.count("(memory-outside-heap)") == 1
    document = json.loads(run_cli(["report", saved, "--json"]).out)
    assert [warning["code"] for warning in document["warnings"]] == ["memory-outside-heap"]
    memory = document["memory"]
    logged = run_cli(["report", saved, "--format", "logfmt"]).out
    assert f" private_bytes={memory['bytes']} private_heap_bytes={memory['heap_bytes']} " in logged


def test_a_program_that_uses_malloc_gets_no_warning(victim: StartVictim, truth: Path) -> None:
    target = victim("ground_truth", truth, 1, 1, 100_000)
    report = scan(target.pid)
    assert report["warnings"] == []
    assert report["memory"]["heap_bytes"] > 4 * MIB
