"""What the native programs write and what wire.py reads is one format: compare the two sources."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reachscan import errors
from reachscan.recording import model, wire, wire_columns
from reachscan.recording.zip_equal import zip_equal

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "native"

Layout = dict[str, Any]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Compile the program that prints the native side's numbers, and run it."""
    program = tmp_path_factory.mktemp("layout") / "dump_layout"
    source = NATIVE / "tests" / "dump_layout.cpp"
    compiler = os.environ.get("CXX", "g++").split()
    command = [
        *compiler,
        "-std=c++20",
        "-Werror=switch",
        f"-I{NATIVE}",
        str(source),
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    layout: Layout = json.loads(printed.stdout)
    return layout


def offsets(names: Sequence[str], layout: struct.Struct) -> dict[str, int]:
    fields = re.findall(r"\d*[a-zA-Z]", layout.format)
    found, at = {"size": layout.size}, 0
    for name, field in zip_equal(names, fields):
        found[name] = at
        at += struct.calcsize(f"<{field}")
    return found


def constant(name: str) -> str:
    """Return a name as Python writes it: WordOwners is WORD_OWNERS."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def test_records_have_the_same_numbers_and_fields(native: Layout) -> None:
    found = {number: fields for number, _, fields in native["records"]}
    assert found == wire.LAYOUTS
    for number, name, _ in native["records"]:
        assert getattr(wire, constant(name)) == number


def test_the_documented_records_are_those_that_are_sent(native: Layout) -> None:
    text = (ROOT / "docs" / "wire-format.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([\w ]+) \| `([^`]*)`", text, re.MULTILINE)
    documented = [[int(n), constant(name.title().replace(" ", "")), row] for n, name, row in rows]
    assert documented == [[n, constant(name), row] for n, name, row in native["records"]]


def test_every_record_can_be_read(native: Layout) -> None:
    assert {*wire.RECORDS, *wire_columns.COLUMNS, wire.REGIONS} == wire.LAYOUTS.keys()


@pytest.mark.parametrize(
    "enum", ["Doubt", "Shape", "BlockState", "Holder", "Permission", "RegionKind"]
)
def test_members_of_enums(native: Layout, enum: str) -> None:
    members = {constant(name): value for name, value in native[enum].items()}
    assert members
    assert members == {name: getattr(model, name) for name in members}


def test_what_python_takes_for_a_reason_is_a_doubt(native: Layout) -> None:
    assert {*native["Doubt"].values(), model.CHANGED} == model.REASONS


def test_phases(native: Layout) -> None:
    assert {number: name.lower() for name, number in native["Phase"].items()} == wire.PHASES


COLUMNS_OF_THEIR_OWN = {wire.KINDS: ["object_type"]}
"""Fields that come in records of one column."""


@pytest.mark.parametrize(
    ("record", "rows"),
    [
        (wire.TARGET, model.Target),
        (wire.HEAP, model.Heap),
        (wire.REGIONS, model.Regions),
        (wire.KINDS, model.Kinds),
        (wire.MAPPINGS, model.Mapping),
        (wire.MODULES, model.Module),
        (wire.THREADS, model.Thread),
        (wire.BLOCK, model.Block),
        (wire.REFERENCES, model.Reference),
        (wire.CHAIN, model.Reference),
        (wire.WORD_OWNERS, model.WordOwner),
        (wire.WARNING, model.Warning),
        (wire.FINAL, model.Totals),
        (wire.LEAKS, wire_columns.LeakColumns),
    ],
)
def test_rows_of_the_model_have_the_fields_in_order(record: int, rows: Any) -> None:
    """Rows become named tuples by position: a swap would go unnoticed."""
    names = re.findall(r"[iu](?:8|32|64) (\w+)|(?:str|raw) (\w+)", wire.LAYOUTS[record])
    fields = [a or b for a, b in names if (a or b) not in ("n", "w")]
    assert fields + COLUMNS_OF_THEIR_OWN.get(record, []) == list(rows._fields)


def test_hello_and_frame(native: Layout) -> None:
    assert bytes(native["magic"]) == wire.MAGIC
    assert offsets(wire.Hello._fields, wire.HELLO) == native["hello"]
    assert offsets(wire.Header._fields, wire.HEADER) == native["frame"]


@pytest.mark.parametrize("name", ["VERSION", "LITTLE_ENDIAN", "WORD_SIZE", "MAX_PAYLOAD"])
def test_constants(native: Layout, name: str) -> None:
    assert native["constants"][name] == getattr(wire, name)


def test_the_parent_of_a_direct_leak(native: Layout) -> None:
    assert native["constants"]["DIRECT"] == model.DIRECT


def test_steps_have_different_names(native: Layout) -> None:
    steps = native["steps"]
    assert len(steps) == len(set(steps)) > 10


def test_each_failure_has_its_advice(native: Layout) -> None:
    assert native["failures"] == list(errors.FAILURES)


def test_the_documented_failures_are_those_that_are_sent(native: Layout) -> None:
    text = (ROOT / "docs" / "wire-format.md").read_text()
    listed = text.split("`code` is one of")[1].split(".")[0]
    assert re.findall(r"`([a-z-]+)`", listed) == native["failures"]
