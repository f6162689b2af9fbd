"""What addresses point into, in processes with any number of modules."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest
from streams import Stream

from reachscan.naming import confined, symbols
from reachscan.naming.memory_map import AddressSpace
from reachscan.naming.module_files import ModuleFiles
from reachscan.naming.untrusted_files import UnusableFileError
from reachscan.recording import model, wire
from reachscan.recording.decode import decode

TraceFunction = Callable[[FrameType, str, Any], Any]

START, STEP = 0x7F00_0000_0000, 0x10000


def recording(count: int) -> model.Recording:
    """Return a recording of a process with so many modules, none of which has a file."""
    mappings = [
        model.Mapping(START + i * STEP, START + i * STEP + 0x1000, 0, i + 1, 5, f"/nowhere/{i}.so")
        for i in range(count)
    ]
    modules = [(m.start, m.path, b"\1" * 20) for m in mappings]
    return decode(wire.frames(io.BytesIO(Stream(mappings=mappings, modules=modules).encoded())))


def lines_run(action: Callable[[], object]) -> int:
    """Return how many lines of Python are run, which depends on no clock."""
    count = 0

    def count_it(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return count_it

    sys.settrace(count_it)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


def test_a_mapping_holds_its_first_byte_and_not_its_end() -> None:
    rec = recording(2)
    space = AddressSpace(rec.mappings, rec.modules)
    ends = [START - 1, START, START + 0xFFF, START + 0x1000, START + STEP]
    assert space.mapping_at(np.array(ends, np.uint64)).tolist() == [-1, 0, 0, -1, 1]


def test_bases() -> None:
    rec = recording(3)
    space = AddressSpace.of(rec)
    assert space.bases == {f"/nowhere/{i}.so": START + i * STEP for i in range(3)}


@pytest.mark.parametrize(
    ("permissions", "owner"), [(3, "/nowhere/0.so"), (3 | model.APART, None), (1, None)]
)
def test_what_lies_right_behind_the_data_of_a_module(permissions: int, owner: str | None) -> None:
    data = model.Mapping(START, START + 0x1000, 0, 1, 3, "/nowhere/0.so")
    behind = model.Mapping(START + 0x1000, START + 0x2000, 0, 0, permissions, "")
    further = behind._replace(start=START + 0x2000, end=START + 0x3000)
    space = AddressSpace([data, behind, further], [model.Module(START, data.path, b"")])
    assert space.module_of_address(START + 0x1800) == owner
    assert space.module_of_address(START + 0x2800) is None


def name_all(rec: model.Recording) -> None:
    addresses = np.array([m.start + 8 for m in rec.mappings], np.uint64)
    files = ModuleFiles(rec, AddressSpace.of(rec), root="/")
    assert symbols.name_addresses(files, addresses).names == {}


@pytest.mark.parametrize("do", [AddressSpace.of, name_all])
def test_work_grows_no_faster_than_the_number_of_modules(
    do: Callable[[model.Recording], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined, "each", here)
    few, many = recording(100), recording(1000)
    assert lines_run(lambda: do(many)) < 12 * lines_run(lambda: do(few))


def here(items: Sequence[str], work: confined.Work) -> Iterator[tuple[str, object]]:
    """Do in this process, where it can be counted, what fails for each."""
    for item in items:
        with pytest.raises(UnusableFileError) as caught:
            work(item)
        yield item, confined.Failed(str(caught.value))
