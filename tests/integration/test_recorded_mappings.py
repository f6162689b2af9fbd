"""`run --mmap`: the mappings and stacks of a program, against what it knows of them itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from victims import build

import reachscan

SCHEMA = Path(reachscan.__file__).parent / "schema" / "report-v1.json"
RUN = (sys.executable, "-m", "reachscan", "run")

Mapped = tuple[str, str, int, str]
"""Function, address, bytes; of a stack, whether its thread `runs` or has `ended`."""


def run(*options: object) -> subprocess.CompletedProcess[str]:
    program = build("mapped", ("-g", "-pthread", "-fno-optimize-sibling-calls"))
    command = [*RUN, *map(str, options), "--", str(program)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[Mapped], dict[str, Any]]:
    file = tmp_path_factory.mktemp("mapped") / "report.json"
    done = run("--mmap", "--all", "--json", "-o", file)
    assert done.returncode in (0, 1), done.stderr
    truth: set[Mapped] = set()
    for line in done.stdout.splitlines():
        function, address, size, *more = line.split()
        truth.add((function, address, int(size), more[0] if more else ""))
    return truth, json.loads(file.read_text())


def test_the_mappings_are_exactly_those_that_are_left(
    done: tuple[set[Mapped], dict[str, Any]],
) -> None:
    truth, report = done
    found = {
        (
            report["stacks"][mapping["stack"]][0]["function"],
            mapping["address"],
            mapping["size"],
            ("ended" if mapping["thread_ended"] else "runs") * (mapping["kind"] == "stack"),
        )
        for mapping in report["mappings"]
    }
    assert found == truth
    assert len(report["mappings"]) == len(truth)


def test_mappings_have_the_whole_stack_and_fit_the_schema(
    done: tuple[set[Mapped], dict[str, Any]],
) -> None:
    _, report = done
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    for mapping in report["mappings"]:
        names = [frame["function"] for frame in report["stacks"][mapping["stack"]]]
        assert "main" in names
        assert mapping["tid"] == report["target"]["pid"]
    assert report["leaks"]["bytes"] >= 4 << 20  # malloc's own mapping is a leaked block


def test_text_lists_mappings_apart_from_leaks() -> None:
    told = " ".join(run("--mmap").stderr.split())
    assert "recorded mappings, which are no leaks" in told
    assert "stack of a thread that has ended and was not joined, created by" in told


def test_without_the_option_there_are_none(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    run("--all", "--json", "-o", file)
    assert "mappings" not in json.loads(file.read_text())


@pytest.mark.parametrize("command", ["attach", "where"])
@pytest.mark.parametrize("options", ["--mmap", "--stacks instrumented"])
def test_a_process_that_runs_already_is_refused(command: str, options: str) -> None:
    words = [sys.executable, "-m", "reachscan", command, "1", *options.split()]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"use {options} with reachscan run" in " ".join(done.stderr.split())
