"""The join: facts from elsewhere reach the blocks that they are about, and are found out once."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_lines import Runner
from streams import CODE, CONSTANTS, HEAP_START, LIBRARY_PATH, Leak, Stream

from reachscan.grouping.folding import fold
from reachscan.grouping.join import Joined, join
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model, wire
from reachscan.recording.decode import decode

VTABLE = CONSTANTS + 8
LEAKS = [Leak(24, [VTABLE], [40]), Leak(24, [CODE + 8]), Leak(24, [7])]


def joined(stream: Stream) -> Joined:
    return join(decode(wire.frames(io.BytesIO(stream.encoded()))), root="/")


def test_each_block_gets_its_type_and_what_its_words_are() -> None:
    names = {CODE + 8: model.Name(LIBRARY_PATH, "work", 8)}
    found = joined(Stream(leaks=LEAKS, types={VTABLE: "3Foo"}, names=names))
    assert [found.types.names[i] if i >= 0 else None for i in found.type] == ["Foo", None, None]
    assert [found.labels[code] for code in found.codes[0]][1:] == ["libexample.so.1+work", "int"]
    assert (found.names, found.warnings) == (names, ())


def test_what_has_no_names_is_named_and_says_what_could_not_be() -> None:
    found = joined(Stream(leaks=LEAKS))
    assert found.names == {}
    assert [warning.code for warning in found.warnings] == ["no-symbols"]


def test_groups_and_what_hangs_below_them_are_found_in_any_order() -> None:
    folded = fold(joined(Stream(leaks=LEAKS, names={})), {})
    order = np.arange(len(folded.example))[::-1]
    other = folded.reordered(order)
    for column in ("bytes", "example", "size", "type", "reason", "signature"):
        assert getattr(other, column).tolist() == getattr(folded, column)[order].tolist()
    assert folded.group_of_leak.tolist() == (len(order) - 1 - other.group_of_leak).tolist()


@pytest.mark.parametrize("format_", ["text", "json", "html"])
@pytest.mark.parametrize("subject", ["leaks", "heap", "explain"])
def test_a_scan_has_one_memory_map(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str, format_: str
) -> None:
    made: list[object] = []
    init = AddressSpace.__init__

    def counted(self: AddressSpace, *arguments: Any) -> None:
        made.append(self)
        init(self, *arguments)

    monkeypatch.setattr(AddressSpace, "__init__", counted)
    kinds = [(1, 24, 24, HEAP_START, 0, 0, [CODE + 8])]
    block = model.Block(HEAP_START, HEAP_START, 24, model.REACHABLE, 0)
    asked = {
        "leaks": Stream(leaks=LEAKS),
        "heap": Stream(kinds=kinds),
        "explain": Stream(kinds=kinds, extra=wire.encode(wire.BLOCK, block._asdict())),
    }
    file = tmp_path / "made.rsc"
    file.write_bytes(asked[subject].encoded())
    done = run("report", file, "--format", format_)
    assert done.status == (2 if (subject, format_) == ("explain", "html") else subject == "leaks")
    assert len(made) == 1
