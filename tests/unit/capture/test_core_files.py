"""Core files are opened, and decompressed without taking memory or leaving anything behind."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reachscan import errors
from reachscan.capture import core_files

BLOCKS = st.lists(st.sampled_from([bytes(1 << 20), b"core" * 1000, bytes(4096)]), max_size=4)
UNIMPORTANT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def read(path: Path) -> bytes:
    with core_files.opened(path) as descriptor:
        return Path(f"/proc/self/fd/{descriptor}").read_bytes()


@given(BLOCKS)
@settings(max_examples=20, suppress_health_check=UNIMPORTANT)
def test_what_was_compressed_comes_back(tmp_path: Path, blocks: list[bytes]) -> None:
    content = b"".join(blocks)
    (tmp_path / "core.gz").write_bytes(gzip.compress(content))
    assert read(tmp_path / "core.gz") == content


def test_what_is_not_compressed_is_opened_itself(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF")
    with core_files.opened(tmp_path / "core") as descriptor:
        assert os.path.samestat(os.fstat(descriptor), (tmp_path / "core").stat())


def test_zeros_take_no_room(tmp_path: Path) -> None:
    (tmp_path / "core.gz").write_bytes(gzip.compress(bytes(64 << 20) + b"end"))
    with core_files.opened(tmp_path / "core.gz") as descriptor:
        status = os.fstat(descriptor)
        assert status.st_size == (64 << 20) + 3
        assert status.st_blocks * 512 < 1 << 20
        assert status.st_nlink == 0 and status.st_mode & 0o777 == 0o600
        assert status.st_mtime_ns == (tmp_path / "core.gz").stat().st_mtime_ns


@given(st.binary(max_size=200))
@settings(max_examples=20, suppress_health_check=UNIMPORTANT)
def test_damaged_data_is_refused(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "core.gz").write_bytes(b"\x1f\x8b" + junk)
    with pytest.raises(errors.BadCoreError, match="the gzip data is damaged or truncated"):
        read(tmp_path / "core.gz")


def test_without_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core.gz").write_bytes(gzip.compress(b"core"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(errors.BadCoreError, match="no program of that name"):
        read(tmp_path / "core.gz")


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core.gz").write_bytes(gzip.compress(b"core" * (1 << 20)))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(core_files, "_write_sparsely", refuse)
    with pytest.raises(errors.BadCoreError, match="cannot be decompressed: No space left"):
        read(tmp_path / "core.gz")
    assert "gzip" not in [child.name() for child in psutil.Process().children()]


def test_memory_that_cannot_be_read_is_no_core_file() -> None:
    with pytest.raises(errors.BadCoreError, match="cannot be read: Input/output error"):
        read(Path(f"/proc/{os.getpid()}/mem"))
