"""A process whose allocations are recorded: reports say which stack allocated what is lost.

The program writes the tables of a recorder by itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from scans import run_cli, scan
from victims import Victim, build, running

import reachscan

SCHEMAS = Path(reachscan.__file__).parent / "schema"
COUNT = 25
DAEMON = """
import ctypes, os, sys
ctypes.CDLL(None).daemon(1, 1)
print(os.getpid(), flush=True)
sys.stdin.read()
"""

Group = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Victim]:
    with running([str(build("recorded", ("-g", "-pthread"))), str(COUNT)]) as victim:
        yield victim


@pytest.fixture(scope="module")
def report(recorded: Victim) -> dict[str, Any]:
    return scan(recorded.pid, "--all")


def functions(stack: list[dict[str, Any]]) -> list[str]:
    """Return the names of a stack up to the thread's own function, without scopes and types."""
    names = [re.sub(r"\(.*?\)|.*::", "", frame["function"] or "") for frame in stack]
    return names[: names.index("run") + 1]


def group_of(report: dict[str, Any], function: str) -> Group:
    (group,) = (
        group
        for group in report["groups"]
        if group["stack"] is not None
        and functions(report["stacks"][group["stack"]])[-2:] == [function, "run"]
    )
    return dict(group)


def test_each_stack_is_one_group(report: dict[str, Any]) -> None:
    assert group_of(report, "open_session")["allocations"] == COUNT
    names = group_of(report, "copy_name")
    assert names["allocations"] == 2 * COUNT
    assert {row["size"] for row in names["sizes"]} == {104, 200}
    assert group_of(report, "dive")["allocations"] == 1
    (unknown,) = (group for group in report["groups"] if group["stack"] is None)
    assert (unknown["allocations"], unknown["size"]) == (1, 504)


def test_a_stack_names_the_lines_of_its_calls(report: dict[str, Any]) -> None:
    stack = report["stacks"][group_of(report, "open_session")["stack"]]
    assert functions(stack) == ["make_session", "open_session", "run"]
    assert [frame["inlined"] for frame in stack[:3]] == [True, False, False]
    assert stack[0]["pc"] == stack[1]["pc"] != stack[2]["pc"]
    source = Path(stack[0]["file"]).read_text().splitlines()
    assert "return allocate(48)" in source[stack[0]["line"] - 1]
    assert "make_session()" in source[stack[1]["line"] - 1]
    assert "open_session()" in source[stack[2]["line"] - 1]
    assert Path(stack[0]["module"]).name == "recorded" and stack[0]["build_id"]


def test_recursion_is_shown_call_by_call(report: dict[str, Any]) -> None:
    stack = report["stacks"][group_of(report, "dive")["stack"]]
    assert functions(stack) == ["dive"] * 21 + ["run"]


def test_a_group_tells_of_thread_and_age(report: dict[str, Any]) -> None:
    group = group_of(report, "open_session")
    (thread,) = group["threads"]
    assert (thread["name"], thread["allocations"]) == ("worker", COUNT)
    assert 0 <= group["age_us"]["newest"] <= group["age_us"]["oldest"]
    assert group["age_us"]["oldest"] <= 10**9


def test_blocks_have_the_stack_of_their_group(report: dict[str, Any]) -> None:
    stack_of_group = [group["stack"] for group in report["groups"]]
    assert len(report["allocations"]) == 3 * COUNT + 2
    for block in report["allocations"]:
        assert block["stack"] == stack_of_group[block["group"]]
        assert (block["tid"] is None) == (block["age_us"] is None) == (block["stack"] is None)


def test_the_report_says_how_it_was_recorded(report: dict[str, Any]) -> None:
    recorder = report["target"]["recorder"]
    assert (recorder["mode"], recorder["lost"], recorder["stopped"]) == ("library", 0, None)
    assert recorder["records"] == 3 * COUNT + 5
    assert recorder["since"] < report["snapshot"]["started"]


def test_the_report_fits_its_schema(report: dict[str, Any]) -> None:
    jsonschema.validate(report, json.loads((SCHEMAS / "report-v1.json").read_text()))


def test_tables_count_neither_as_roots_nor_as_memory_of_the_program(
    report: dict[str, Any],
) -> None:
    """They hold the address of each recorded block, and are a megabyte."""
    assert report["leaks"]["allocations"] == 3 * COUNT + 2
    assert report["memory"]["bytes"] < 1 << 20


@pytest.mark.parametrize("method", ["copy", "track"])
def test_other_methods_see_the_same(recorded: Victim, method: str) -> None:
    group = group_of(scan(recorded.pid, "--method", method), "open_session")
    assert group["allocations"] == COUNT


def test_text_shows_the_stack_below_each_kind(recorded: Victim) -> None:
    out = run_cli([recorded.pid]).out
    assert re.search(
        r"allocated by worker, .* ago\n +.*make_session .*recorded\.cpp:\d+,\s+inlined\)"
        r"\n +.*open_session\(\) .*recorded\.cpp:\d+\)\n",
        out,
    )
    assert "allocate(" not in out and "backtrace" not in out


def test_live_blocks_have_stacks_too(recorded: Victim) -> None:
    heap = json.loads(run_cli(["heap", recorded.pid, "--json", "--limit", 100]).out)
    stacks = {
        functions(heap["stacks"][group["stack"]])[-2]: group
        for group in heap["groups"]
        if group["stack"] is not None
    }
    assert stacks["keep"]["allocations"] == 4
    assert stacks["copy_name"]["allocations"] == 2 * COUNT
    assert stacks["keep"]["threads"][0]["name"] == "worker"


def test_a_child_that_was_forked_unseen_is_recorded() -> None:
    """daemon() does not call fork() by its name."""
    command = [sys.executable, "-m", "reachscan", "run", "--", sys.executable, "-c", DAEMON]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        heap = json.loads(run_cli(["heap", process.stdout.readline().strip(), "--json"]).out)
        process.stdin.close()
    assert heap["target"]["recorder"]["mode"] == "run"
    assert any(group["stack"] is not None for group in heap["groups"])


@pytest.mark.parametrize("command", ["explain", "refs"])
def test_answers_about_a_block_have_its_stack(recorded: Victim, command: str) -> None:
    done = run_cli([command, recorded.pid, recorded.ready["kept"], "--json"])
    answer = json.loads(done.out)
    jsonschema.validate(answer, json.loads((SCHEMAS / "block-v1.json").read_text()))
    assert functions(answer["stacks"][answer["block"]["stack"]]) == ["keep", "run"]
    assert "keep" in run_cli([command, recorded.pid, recorded.ready["kept"]]).out


def test_a_saved_scan_says_the_same(recorded: Victim, tmp_path: Path) -> None:
    raw = tmp_path / "scan.rsc"
    live = scan(recorded.pid, "--save", raw)
    saved = json.loads(run_cli(["report", raw, "--json"]).out)
    assert saved["stacks"] == live["stacks"]
    assert saved["groups"] == live["groups"]


def test_confirmed_scans_keep_the_stacks(recorded: Victim) -> None:
    report = scan(recorded.pid, "--confirm", 2, "--confirm-every", 0.01)
    assert group_of(report, "open_session")["allocations"] == COUNT


def test_scans_are_compared_by_stack(
    recorded: Victim, tmp_path: Path, report: dict[str, Any]
) -> None:
    raw = tmp_path / "scan.rsc"
    scan(recorded.pid, "--save", raw)
    with running([*recorded.command[:1], str(COUNT + 7)]) as other:
        done = run_cli(["scan", other.pid, "--json", "--baseline", raw])
    after = json.loads(done.out)
    grown = group_of(after, "open_session")
    assert (grown["standing"], grown["before"]["allocations"]) == ("counts", COUNT)
    assert group_of(after, "dive")["standing"] == "known"
    assert grown["key"] == group_of(report, "open_session")["key"]


@pytest.mark.parametrize(
    "rule",
    [
        "fun: *open_session*",
        "leak:open_session",
        "{\n name\n Memcheck:Leak\n fun:malloc\n fun:*open_session()\n ...\n obj:*libc.so*\n}",
    ],
)
def test_rules_name_functions_of_the_stack(recorded: Victim, tmp_path: Path, rule: str) -> None:
    file = tmp_path / "known.supp"
    file.write_text(rule)
    report = scan(recorded.pid, "--suppressions", file)
    assert report["warnings"] == []
    assert group_of(report, "open_session")["standing"] == "suppressed"
    assert report["suppressed"]["allocations"] == COUNT
