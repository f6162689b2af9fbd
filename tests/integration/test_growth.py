"""Leaks over time, of a real program that leaks when told to."""

from __future__ import annotations

import json
from pathlib import Path

from growing import growing_jq
from scans import Finished, run_cli

FEW, MANY = 40, 400


def diff(*words: object) -> Finished:
    return run_cli(["diff", *words, "--json"])


def test_diff_of_any_mix_of_files_tells_what_grew(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("1.rsc", "1.json", "2.rsc", "2.json")}
    with growing_jq() as jq:
        for number, records in ((1, FEW), (2, MANY)):
            jq.leak(records)
            raw, report = files[f"{number}.rsc"], files[f"{number}.json"]
            assert run_cli([jq.pid, "--json", "-o", report, "--save", raw]).status == 1
    for old in ("1.rsc", "1.json"):
        for new in ("2.rsc", "2.json"):
            done = diff(files[old], files[new])
            assert done.status == 1, done.talk
            found = json.loads(done.out)
            # The registers of a waiting process may hold on to the last few blocks.
            assert 2 * MANY - 8 <= found["by"]["allocations"] <= 2 * MANY + 8
            assert (
                sum(c["new"]["bytes"] - c["old"]["bytes"] for c in found["changes"])
                == (found["by"]["bytes"])
            )
            assert found["warnings"] == []
            back = json.loads(diff(files[new], files[old]).out)
            assert back["by"]["allocations"] == -found["by"]["allocations"]
    for number in (1, 2):
        done = diff(files[f"{number}.rsc"], files[f"{number}.json"])
        assert (done.status, json.loads(done.out)["changes"]) == (0, [])
