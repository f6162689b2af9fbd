"""Damaged streams and ELF files are read or refused, and nothing else: no crash, no traceback.

REACHSCAN_FUZZ_SECONDS gives each test more time; REACHSCAN_FUZZ_INPUT repeats one input.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import fuzzing
import numpy as np
import pytest
import streams
from recorders import Recorded
from streams import Leak, Stream

from reachscan import errors, reports, scanning
from reachscan.naming import elf_files, symbols
from reachscan.naming.untrusted_files import Root, UnusableFileError
from reachscan.recording import model, wire

DUMP = b"""Android Native Heap Dump v1.2

Build fingerprint: 'a/b:10/c'

Total memory: 9512
Allocation records: 3
Backtrace size: 2

z 0  sz     4096  num    2  bt 7b700010 7b700200
  bt_info {"/system/lib64/libfoo.so" 10 "make(int)" 4} {"" 0 "" 0}
z 1  sz     1000  num    1  bt 7b700010
z 0  sz       64  num    5  bt
MAPS
7b600000-7b900000 r-xp 00100000 fd:00 120 /system/lib64/libfoo.so
7c000000-7c001000 rw-p 00000000 00:00 0
END
"""
SOURCE = "int table[4]; int first(void) { return table[1]; } int main(void) { return first(); }"


def corpus() -> list[bytes]:
    """Whole streams with records of every kind."""
    heap = streams.HEAP_START + 0x10
    found = [
        Leak(24, [streams.CONSTANTS + 8, heap, 5]),
        Leak(200, [0x6F6C6C6568, streams.DATA], below=[16, 32, 4000]),
        Leak(64, below=[64, 64], address=heap + (1 << 20)),
    ]
    full = Stream(
        leaks=found,
        types={streams.CONSTANTS + 8: "N4shop7SessionE"},
        warnings=[("a-code", "a message")],
        contents={0: bytes(range(100))},
        doubts=[(0, 1, 1)],
        names={streams.CONSTANTS: model.Name(streams.LIBRARY_PATH, "table", 8)},
    )
    kinds: list[streams.Kind] = [
        (5, 120, 24, heap, 0, 1, [streams.CONSTANTS]),
        (1, 8, 8, heap, 0, 7, []),
    ]
    stacks = [(streams.CODE + 8, streams.CODE + 16), (streams.CODE + 8,)]
    calls = [(stack, 1, 500, 20) for stack in stacks]
    module = (3, 0x7000, "/lib/gone.so", b"\4\5")
    of_leaks = Recorded(
        [*calls * 3, calls[0], None], closed=[module], closed_calls=[streams.CODE + 16]
    )
    of_kinds = Recorded(calls, about=wire.KIND_ORIGINS, header={"sample": 512, "lost": 3})
    return [
        full.encoded(),
        Stream(leaks=found, extra=of_leaks.encoded()).encoded(),
        Stream(kinds=kinds, extra=of_kinds.encoded()).encoded(),
        Stream(leaks=found, chunk=2).encoded(),
        Stream(kinds=kinds).encoded(),
        streams.failure("timeout", "it took too long"),
    ]


def damaged_record(raw: bytes, chance: random.Random) -> bytes:
    """Damage one record within, so that its frame still fits, or repeat it, or damage the whole."""
    if chance.random() < 0.3:
        return fuzzing.damaged(raw, chance)
    pieces = [wire.hello_bytes()]
    at = len(pieces[0])
    while at < len(raw):
        header = wire.Header(*wire.HEADER.unpack_from(raw, at))
        end = at + wire.HEADER.size + header.length
        pieces.append(raw[at:end])
        at = end
    which = chance.randrange(1, len(pieces))
    kind = wire.Header(*wire.HEADER.unpack_from(pieces[which])).type
    if chance.random() < 0.1:
        pieces[which] *= chance.randrange(20_000)
        return b"".join(pieces)
    payload = fuzzing.damaged(pieces[which][wire.HEADER.size :], chance)
    pieces[which] = wire.frame_bytes(wire.Frame(kind, payload))
    return b"".join(pieces)


@pytest.fixture
def report(tmp_path: Path) -> Callable[[bytes], None]:
    """Return what reads a file, and writes it in all formats."""
    file = tmp_path / "scan.rsc"

    def report(raw: bytes) -> None:
        file.write_bytes(raw)
        result = scanning.load(file)
        every = reports.Selection(every_block=True)
        for format_ in reports.FORMATS[result.subject]:
            for _ in reports.lines(result.subject, format_, result, every):
                pass

    return report


@pytest.mark.filterwarnings("error")
def test_streams(report: Callable[[bytes], None]) -> None:
    assert fuzzing.survives(corpus(), report, (errors.ReachscanError,), damaged_record) > 0


@pytest.mark.filterwarnings("error")
def test_heap_dumps(report: Callable[[bytes], None]) -> None:
    whole = [DUMP, DUMP.replace(b"v1.2", b"v1.0")]
    assert fuzzing.survives(whole, report, (errors.ReachscanError,), fuzzing.damaged) > 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "small.c").write_text(SOURCE)
    command = ["gcc", "-g", "-Wl,--build-id", "-o", "small", "small.c"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "small"


def damaged_elf(raw: bytes, chance: random.Random) -> bytes:
    """Damage the parts that say where everything else is, more often than the rest."""
    if chance.random() < 0.3:
        return fuzzing.damaged(raw, chance)
    sections = int.from_bytes(raw[0x28:0x30], "little")
    start, end = chance.choice(((0, 64), (64, 64 + 13 * 56), (sections, len(raw))))
    out = fuzzing.damaged(raw[start:end], chance)[: end - start]
    return raw[:start] + out.ljust(end - start, b"\0") + raw[end:]


@pytest.mark.filterwarnings("error")
def test_elf_files(tmp_path: Path, program: Path) -> None:
    file = tmp_path / "damaged"
    addresses = np.arange(0, 1 << 14, 64, dtype=np.uint64)

    def read(raw: bytes) -> None:
        file.write_bytes(raw)
        with elf_files.opened(lambda: file.open("rb")) as elf:
            elf_files.build_id(elf)
            elf_files.loads(elf)
            for table in symbols.tables(elf, str(file), [Root(Path("/"), os.geteuid())]):
                list(table.names(addresses, addresses))

    corpus = [program.read_bytes()]
    assert fuzzing.survives(corpus, read, (UnusableFileError,), damaged_elf) > 0
