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
from reachscan.naming import places
from reachscan.recording import model, wire, wire_columns

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "native"

Layout = dict[str, Any]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Compile the program that prints the native side's numbers, and run it."""
    program = tmp_path_factory.mktemp("layout") / "dump_layout"
    source = NATIVE / "tests" / "dump_layout.cpp"
    compiler = os.environ.get("CXX", "g++").split()
    command = [*compiler, "-std=c++20", f"-I{NATIVE}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    layout: Layout = json.loads(printed.stdout)
    return layout


def offsets(names: Sequence[str], layout: struct.Struct) -> dict[str, int]:
    fields = re.findall(r"\d*[a-zA-Z]", layout.format)
    found, at = {"size": layout.size}, 0
    for name, field in zip(names, fields, strict=True):
        found[name] = at
        at += struct.calcsize(f"<{field}")
    return found


def test_record_types(native: Layout) -> None:
    assert native["records"] == {name: getattr(wire, name) for name in native["records"]}
    known = {*wire.RECORDS, *wire.COLUMNS, wire.REGIONS}
    assert set(native["records"].values()) == known


def test_phases(native: Layout) -> None:
    assert {number: name for name, number in native["phases"].items()} == wire.PHASES


def test_hello_and_frame(native: Layout) -> None:
    assert bytes(native["magic"]) == wire.MAGIC
    assert offsets(wire.Hello._fields, wire.HELLO) == native["hello"]
    assert offsets(wire.Header._fields, wire.HEADER) == native["frame"]


@pytest.mark.parametrize("name", ["VERSION", "LITTLE_ENDIAN", "WORD_SIZE", "MAX_PAYLOAD"])
def test_constants(native: Layout, name: str) -> None:
    assert native["constants"][name] == getattr(wire, name)


@pytest.mark.parametrize("name", ["DIRECT", "READ", "WRITE", "EXECUTE", "SHARED", "APART"])
def test_constants_of_the_model(native: Layout, name: str) -> None:
    assert native["constants"][name] == getattr(model, name)


def test_size_of_a_thread_descriptor(native: Layout) -> None:
    assert native["constants"]["DESCRIPTOR"] == places.DESCRIPTOR


def test_a_record_of_leaks_has_the_columns_that_the_sweeper_writes(native: Layout) -> None:
    width = native["constants"]["LEAD_WORDS"]
    count = 3
    head = count.to_bytes(4, "little") + width.to_bytes(4, "little")
    frame = wire.Frame(wire.LEAKS, head + bytes(count * (8 + 8 + 4 + 8 * width)))
    assert wire_columns.parse_leaks(frame).words.shape == (count, width)


def test_steps_have_different_names(native: Layout) -> None:
    steps = native["steps"]
    assert len(steps) == len(set(steps)) > 10


def test_each_failure_has_its_advice(native: Layout) -> None:
    assert native["failures"] == list(errors.FAILURES)


def test_the_documented_failures_are_those_that_are_sent(native: Layout) -> None:
    text = (ROOT / "docs" / "wire-format.md").read_text()
    listed = text.split("`code` is one of")[1].split(".")[0]
    assert re.findall(r"`([a-z-]+)`", listed) == native["failures"]
