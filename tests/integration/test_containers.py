"""Lost containers: every report shows how they hang together, with all blocks counted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import StartVictim
from scans import run_cli, scan

import reachscan

SCHEMA = json.loads((Path(reachscan.__file__).parent / "schema/report-v1.json").read_text())
CACHES, SESSIONS = 5, 400
TOGETHER = CACHES * SESSIONS
MANY = (
    "tree node",
    "tree node > shop::Session",
    "tree node > shop::Session > text",
    "tree node > shop::Session > vector body",
    "list node",
    "list node > text",
    "chain node",
    "chain node > text",
)


def paths(branches: list[dict[str, Any]], above: str = "") -> dict[str, int]:
    """Return how many blocks there are at the end of each way down a tree."""
    found: dict[str, int] = {}
    for branch in branches:
        path = f"{above}{branch['name']}"
        found |= {path: branch["allocations"], **paths(branch["below"], f"{path} > ")}
    return found


@pytest.fixture
def saved(victim: StartVictim, tmp_path: Path) -> Path:
    path = tmp_path / "containers.rsc"
    scan(victim("containers", CACHES, SESSIONS).pid, "--save", path)
    return path


def test_a_map_of_sessions_shows_as_one(saved: Path) -> None:
    report = json.loads(run_cli(["report", saved, "--json", "--all"]).out)
    jsonschema.validate(report, SCHEMA, cls=jsonschema.Draft202012Validator)
    groups = {group["type"]: group for group in report["groups"] if group["type"]}
    assert groups["shop::Cache"]["allocations"] == CACHES
    found = paths(groups["shop::Cache"]["tree"])
    assert {path: found.pop(path) for path in MANY} == dict.fromkeys(MANY, TOGETHER)
    assert sum(found.values()) == CACHES, "arrays of hash buckets"
    assert groups["shop::Order"]["allocations"] == 1
    assert paths(groups["shop::Order"]["tree"]) == {"shop::Order": TOGETHER - 1}


def test_details_add_up(saved: Path) -> None:
    report = json.loads(run_cli(["report", saved, "--json", "--limit", 1000]).out)
    for group in report["groups"]:
        assert sum(paths(group["tree"]).values()) == group["indirect_allocations"]
        assert sum(row["bytes"] for row in group["sizes"]) == group["bytes"]
    for what in ("allocations", "bytes"):
        assert sum(row[what] for row in report["leaks"]["sizes"]) == report["leaks"][what]


def test_people_and_logs_see_it_too(saved: Path, tmp_path: Path) -> None:
    text = run_cli(["report", saved]).out
    assert re.search(
        rf" {TOGETHER} +\d+  ├ tree node, .*B\n.* {TOGETHER} +\d+  │ └ shop::Session, .*B\n", text
    )
    logged = run_cli(["report", saved, "--format", "logfmt"]).out
    assert re.search(rf'type=shop::Cache .*tree=".*\[{TOGETHER} tree node, .*shop::Session', logged)
    run_cli(["report", saved, "--format", "html", "-o", tmp_path / "page.html"])
    assert '"name":"shop::Session"' in (tmp_path / "page.html").read_text()
