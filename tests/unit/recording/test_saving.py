"""What is saved can be read."""

from __future__ import annotations

import io
from pathlib import Path

import streams
from streams import Stream

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


def test_a_saved_stream_tells_of_the_machine_that_it_came_from(tmp_path: Path) -> None:
    made = Stream().encoded()
    file = tmp_path / "scan.rsc"
    keeper = StreamSaver(file)
    begin = wire.hello_bytes(page_kib=16)
    for _ in keeper.keep(wire.frames(io.BytesIO(begin + made[len(begin) :]))):
        pass
    keeper.complete(model.Findings({}, (), ()))
    with file.open("rb") as saved:
        assert decode(wire.frames(saved)).page_size == 16 << 10


def test_a_stream_without_names_was_named_all_the_same(tmp_path: Path) -> None:
    """Else its addresses would be looked up on the machine that reports."""
    file = tmp_path / "scan.rsc"
    keeper = StreamSaver(file)
    for _ in keeper.keep(wire.frames(io.BytesIO(Stream().encoded()))):
        pass
    keeper.complete(model.Findings({}, (), ()))
    with file.open("rb") as saved:
        assert decode(wire.frames(saved)).names == {}
