"""What is saved can be read."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import streams
from streams import Stream

import reachscan
from reachscan import errors
from reachscan.history import census
from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.save import StreamSaver

MILLION = 1_000_000


def test_a_million_names(tmp_path: Path) -> None:
    """They take more than one record may hold."""
    names = {
        n: model.Name(streams.LIBRARY_PATH, f"symbol_number_{n:08}", 8) for n in range(MILLION)
    }
    file = tmp_path / "scan.rsc"
    keeper = StreamSaver(file)
    for _ in keeper.keep(wire.frames(io.BytesIO(Stream().encoded()))):
        pass
    keeper.complete(model.Findings(names, (model.Warning("a-code", "a message"),), (("fold", 7),)))
    assert file.stat().st_size > wire.MAX_PAYLOAD
    with file.open("rb") as saved:
        recording = decode(wire.frames(saved))
    assert recording.names == names
    assert recording.snapshot.phases[-1] == ("fold", 7)
    assert recording.warnings == (model.Warning("a-code", "a message"),)


def save(file: Path, made: bytes) -> None:
    keeper = StreamSaver(file)
    for _ in keeper.keep(wire.frames(io.BytesIO(made))):
        pass
    keeper.complete(model.Findings({}, (), ()))


def test_a_file_is_packed_if_its_name_says_so(tmp_path: Path) -> None:
    plain, packed = tmp_path / "scan.rsc", tmp_path / "scan.rsc.gz"
    for file in (plain, packed):
        save(file, Stream().encoded())
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    renamed = packed.rename(tmp_path / "scan")
    assert repr(reachscan.load(renamed)) == repr(reachscan.load(plain))
    assert census.read(renamed).total == census.read(plain).total


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:9] + data[12:]])
def test_a_damaged_packed_file(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    file = tmp_path / "scan.rsc.gz"
    save(file, Stream().encoded())
    file.write_bytes(damage(file.read_bytes()))
    for read in (reachscan.load, census.read):
        with pytest.raises(errors.StreamError, match="packed with gzip, and damaged"):
            read(file)


def test_progress_is_not_saved(tmp_path: Path) -> None:
    file, made = tmp_path / "scan.rsc", Stream().encoded()
    begin = wire.hello_bytes()
    progress = wire.encode(wire.PROGRESS, {"phase": 5, "reserved": 0, "done": 1, "total": 2})
    save(file, begin + progress + made[len(begin) :])
    with file.open("rb") as saved:
        assert wire.PROGRESS not in [frame.type for frame in wire.frames(saved)]


def test_a_saved_stream_tells_of_the_machine_that_it_came_from(tmp_path: Path) -> None:
    made = Stream().encoded()
    file = tmp_path / "scan.rsc"
    begin = wire.hello_bytes(page_kib=16)
    save(file, begin + made[len(begin) :])
    with file.open("rb") as saved:
        assert decode(wire.frames(saved)).page_size == 16 << 10


def test_a_stream_without_names_was_named_all_the_same(tmp_path: Path) -> None:
    """Else its addresses would be looked up on the machine that reports."""
    file = tmp_path / "scan.rsc"
    save(file, Stream().encoded())
    with file.open("rb") as saved:
        assert decode(wire.frames(saved)).names == {}
