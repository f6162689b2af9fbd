"""Names are a garnish: whatever a file of the target says, the report comes and says the same."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import run_cli
from victims import CXX_FLAGS, PROGRAMS

ROUNDS = int(os.environ.get("REACHSCAN_DAMAGE_ROUNDS", "1"))
PARTS = (
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".symtab",
    ".strtab",
    ".eh_frame",
    ".note.gnu.build-id",
    ".shstrtab",
    "section headers",
)
SESSIONS = 8
# A cache with its buckets; a session, name, basket, three nodes with two texts, an order.
EXPECTED = 2 + SESSIONS * (4 + 2 + 2 + 1)
FLAGS = [flag for flag in CXX_FLAGS if flag != "-s"]


def sections(raw: bytes) -> dict[str, tuple[int, int]]:
    """Return offset and size of each section of an ELF file, and of the table of them."""
    (table,) = struct.unpack_from("<Q", raw, 0x28)
    size, count, names = struct.unpack_from("<HHH", raw, 0x3A)
    rows = [struct.unpack_from("<IIQQQQ", raw, table + i * size) for i in range(count)]
    texts = rows[names][4]
    found = {"section headers": (table, size * count)}
    for row in rows:
        start = texts + row[0]
        found[raw[start : raw.index(b"\0", start)].decode()] = (row[4], row[5])
    return found


@pytest.fixture(scope="module", params=["-gdwarf-4", "-gdwarf-5"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "containers"
    source = PROGRAMS / "containers.cpp"
    subprocess.run(["g++", *FLAGS, "-g", request.param, source, "-o", path], check=True)
    return path


def damaged(good: bytes, place: tuple[int, int], flips: int, source: random.Random) -> bytes:
    offset, size = place
    raw = bytearray(good)
    for _ in range(flips):
        raw[offset + source.randrange(size)] ^= 1 << source.randrange(8)
    return bytes(raw)


@pytest.mark.parametrize("name", PARTS)
def test_no_damage_costs_the_report(
    program: Path, victim: StartVictim, tmp_path: Path, name: str
) -> None:
    """Such parts of a file are not needed to run it."""
    good, source = program.read_bytes(), random.Random(name)
    saved, copy = tmp_path / "saved.rsc", tmp_path / "containers"
    expected = {"allocations": EXPECTED, "possible_allocations": 0}
    for round_ in range(ROUNDS):
        raw = damaged(good, sections(good)[name], 1 << (4 * round_ % 12), source)
        copy.unlink(missing_ok=True)
        copy.write_bytes(raw)
        copy.chmod(0o755)
        target = victim("", 1, SESSIONS, command=[str(copy)])
        done = run_cli(["scan", target.pid, "--json", "--save", saved])
        assert done.status == 1, (name, round_, done.talk)
        leaks = json.loads(done.out)["leaks"]
        assert {key: leaks[key] for key in expected} == expected
        assert run_cli(["report", saved]).status == 1
