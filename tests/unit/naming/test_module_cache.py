"""Files of other machines: what is fetched is kept, if it is what was asked for."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_elf import library
from test_hostile_files import build_id

from reachscan import errors
from reachscan.naming import module_cache
from reachscan.naming.module_cache import ModuleCache

PATH = "/usr/lib/libshop.so"


class There:
    """A machine that has one file."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[str] = []

    def fetch(self, path: str) -> Iterator[bytes]:
        self.asked.append(path)
        if not self.content:
            raise errors.UnreachableError("its file cannot be read there")
        half = len(self.content) // 2
        yield self.content[:half]
        yield self.content[half:]


def kept(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return library(tmp_path / "module.so")


def test_a_file_is_kept_by_its_build_id(module: Path, tmp_path: Path) -> None:
    folder, name = tmp_path / "cache", build_id(module)
    there = There(module.read_bytes())
    assert ModuleCache(folder, there.fetch).add({PATH: name}) == {}
    (place,) = kept(folder)
    assert place == folder / ".build-id" / name.hex()[:2] / name.hex()[2:]
    assert place.read_bytes() == module.read_bytes()
    assert stat.S_IMODE(place.stat().st_mode) == 0o644


def test_another_file_is_not_kept(module: Path, tmp_path: Path) -> None:
    there = There(module.read_bytes())
    cache = ModuleCache(tmp_path / "cache", there.fetch)
    for _ in range(2):
        reasons = cache.add({PATH: bytes(20)})
        assert reasons == {PATH: "the file there is not the one that was mapped"}
    assert there.asked == [PATH]  # once
    assert kept(tmp_path / "cache") == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "its file cannot be read there"),
        (b"no ELF file", "the file there is not the one that was mapped"),
        (bytes(101), "its file has more than"),
    ],
)
def test_why_a_file_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    monkeypatch.setattr(module_cache, "LARGEST", 100)
    reasons = ModuleCache(tmp_path, There(content).fetch).add({PATH: bytes(20)})
    assert reason in reasons[PATH]
    assert kept(tmp_path) == []


def test_a_module_without_a_build_id_is_not_fetched(tmp_path: Path) -> None:
    there = There(b"anything")
    reasons = ModuleCache(tmp_path, there.fetch).add({PATH: b""})
    assert "no build id" in reasons[PATH]
    assert there.asked == []


def test_a_folder_that_cannot_be_made(module: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    reasons = ModuleCache(tmp_path / "cache", There(b"x").fetch).add({PATH: build_id(module)})
    assert "cannot be kept in" in reasons[PATH]
