"""Modules whose files are a burden to read cost their own names, and nothing else."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import numpy as np
import pytest
import user_file_system
from hostile_elf import (
    STRUCT_SIZE,
    SYMBOL,
    TEXT_SIZE,
    give_endless_sections,
    give_huge_symbol_tables,
    library,
    strip,
    text_offset,
)
from streams import Stream
from victims import wait_until

from reachscan.grouping import struct_candidates
from reachscan.naming import confined, symbols
from reachscan.naming.dwarf import Struct
from reachscan.naming.memory_map import AddressSpace
from reachscan.naming.module_files import ModuleFiles
from reachscan.recording import model, wire
from reachscan.recording.decode import decode

BASE, STEP = 0x7F12_3456_0000, 0x10000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "ITEM_SECONDS", 2.0)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return library(tmp_path / "good.so")


def recording(*paths: Path, exe: Path | None = None) -> model.Recording:
    """Return a recording of a process that has mapped the code of some files, with their ids."""
    mappings, modules = [], []
    for i, path in enumerate(paths):
        start = BASE + i * STEP
        offset, inode = text_offset(path), path.stat().st_ino
        mappings.append(model.Mapping(start, start + TEXT_SIZE, offset, inode, 5, str(path)))
        modules.append((start, str(path), build_id(path)))
    stream = Stream(mappings=mappings, modules=modules, exe=str(exe or "/usr/bin/victim"))
    return decode(wire.frames(io.BytesIO(stream.encoded())))


def build_id(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(1 << 16)
    at = raw.index(b"GNU\0") + 4
    return raw[at : at + 20]


def named(*paths: Path) -> symbols.Named:
    addresses = BASE + STEP * np.arange(len(paths), dtype=np.uint64) + np.uint64(0x10)
    rec = recording(*paths)
    return symbols.name_addresses(ModuleFiles(rec, AddressSpace.of(rec), root="/"), addresses)


def assert_only_it_is_nameless(bad: Path, good: Path, reason: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = named(bad, good)
    assert found.names == {BASE + STEP + 0x10: model.Name(str(good), SYMBOL, 0x10)}
    (warning,) = found.warnings
    assert str(bad) in warning.message
    assert reason in warning.message
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << 10, f"{grown} KiB were taken"


def test_sections_without_end(good: Path, tmp_path: Path) -> None:
    bad = library(tmp_path / "bad.so")
    give_endless_sections(bad)
    assert_only_it_is_nameless(bad, good, "too long")


def test_symbols_without_end(good: Path, tmp_path: Path) -> None:
    bad = library(tmp_path / "bad.so")
    give_huge_symbol_tables(bad)
    assert_only_it_is_nameless(bad, good, "too much memory")


@pytest.mark.parametrize("length", [symbols.LONGEST - 1, 20 << 20])
def test_long_names(good: Path, tmp_path: Path, length: int) -> None:
    found = named(library(tmp_path / "long.so", symbol="x" * length), good)
    lengths = {address: len(name.symbol) for address, name in found.names.items()}
    first, second = BASE + 0x10, BASE + STEP + 0x10
    short = {first: length} if length < symbols.LONGEST else {}
    assert lengths == {**short, second: len(SYMBOL)}


def test_a_file_system_that_is_mute(good: Path, tmp_path: Path) -> None:
    bad = library(tmp_path / "bad.so")
    folder = bad.parent / "folder"
    (folder / ".debug").mkdir(parents=True)
    bad = bad.rename(folder / "bad.so")
    strip(bad, "bad.debug")
    with user_file_system.mute(folder / ".debug") as asked:
        assert_only_it_is_nameless(bad, good, "too long")
        assert asked.is_set()
        assert len(confined._held) == 1, "a process that nobody can end yet"
    wait_until(lambda: confined._held[0].ends_within(0), "the held process has ended")
    assert len(named(good).names) == 1
    assert confined._held == []


def structs_of(rec: model.Recording) -> tuple[set[Struct], bool]:
    files = ModuleFiles(rec, AddressSpace.of(rec), root="/")
    return struct_candidates._read(files, rec.target.exe, {STRUCT_SIZE + 8}, 1 << 30)


def test_types_without_end(good: Path, tmp_path: Path) -> None:
    bad = library(tmp_path / "bad.so", endless_type=True)
    found, complete = structs_of(recording(bad, good))
    assert found == set()
    assert complete
    damaged = recording(bad, good, exe=bad)
    found, complete = structs_of(damaged)
    assert found == set()
    assert not complete, "it is the program's own that is missing"


def test_many_bad_modules_are_summed_up(good: Path, tmp_path: Path) -> None:
    bad = []
    for number in range(2 * symbols.MAX_WARNINGS):
        bad.append(tmp_path / f"bad{number}.so")
        bad[-1].write_bytes(good.read_bytes()[:0x1000])
    found = named(*bad, good)
    assert len(found.names) == 1
    assert len(found.warnings) == symbols.MAX_WARNINGS + 1
    assert f"{symbols.MAX_WARNINGS} more modules" in found.warnings[-1].message
