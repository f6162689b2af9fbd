"""Naming addresses: against a real C library, and small programs made for it."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from streams import Stream

from reachscan.naming import elf_files, module_files, symbols
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model, wire
from reachscan.recording.decode import decode

SOURCE = """
int first(void) { return 1; }
int second(void) { return 2; }
const int table[4] = {1, 2, 3, 4};
int initialised = 3;
char large[0x10000];
namespace app { struct Foo { virtual int answer() { return 42; } }; Foo foo; }
int main() { return app::foo.answer() + first() + second() + table[0]; }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    (folder / "small.cpp").write_text(SOURCE)
    command = ["g++", "-O0", "-Wl,--build-id", "-o", "small", "small.cpp"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "small"


ASSEMBLY = """
  .text
  .globl main, preferred
  .weak weaker
  .type local, @function
  .type weaker, @function
  .type preferred, @function
  .type main, @function
local:
weaker:
preferred:
  nop
  nop
  nop
  nop
main:
  ret
  .size main, .-main
"""


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program with a function that has three names and no size."""
    folder = tmp_path_factory.mktemp("assembled")
    (folder / "small.s").write_text(ASSEMBLY)
    command = ["gcc", "-Wl,--build-id", "-o", "small", "small.s"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "small"


BASE = 0x7F12_3456_7000


def recording(path: Path, build_id: bytes) -> model.Recording:
    """Return a recording of a process that has mapped the segments of an ELF file at BASE."""
    mappings = []
    with path.open("rb") as file:
        for segment in ELFFile(file).iter_segments("PT_LOAD"):
            start = segment["p_vaddr"] & ~0xFFF
            end = (segment["p_vaddr"] + segment["p_filesz"] + 0xFFF) & ~0xFFF
            mappings.append(
                model.Mapping(
                    BASE + start,
                    BASE + end,
                    segment["p_offset"] & ~0xFFF,
                    path.stat().st_ino,
                    segment["p_flags"] >> 2 & 1
                    | segment["p_flags"] & 2
                    | (segment["p_flags"] & 1) << 2,
                    str(path),
                )
            )
    stream = Stream(mappings=mappings, modules=[(BASE, str(path), build_id)])
    return decode(wire.frames(io.BytesIO(stream.encoded())))


def build_id(path: Path) -> bytes:
    with elf_files.opened(lambda: path.open("rb")) as elf:
        return elf_files.build_id(elf)


def value(path: Path, name: str) -> int:
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(section, SymbolTableSection)
        found = section.get_symbol_by_name(name)
        assert found
        return int(found[0]["st_value"])


def at(*addresses: int) -> model.Addresses:
    return np.array(sorted(addresses), np.uint64)


def name(rec: model.Recording, *addresses: int, root: str | Path | None = "/") -> symbols.Named:
    files = module_files.ModuleFiles(rec, AddressSpace.of(rec), root=root)
    return symbols.name_addresses(files, at(*addresses))


def test_functions_and_objects_are_named(program: Path) -> None:
    wanted = {
        "first()": BASE + value(program, "_Z5firstv"),
        "second()": BASE + value(program, "_Z6secondv") + 3,
        "vtable for app::Foo": BASE + value(program, "_ZTVN3app3FooE") + 16,
    }
    named = name(recording(program, build_id(program)), *wanted.values())
    assert named.warnings == ()
    assert {n.symbol: a for a, n in named.names.items()} == wanted
    assert named.names[wanted["second()"]].offset == 3
    assert named.names[wanted["second()"]].module == str(program)


def test_of_several_names_the_global_one_is_used(assembled: Path) -> None:
    where = BASE + value(assembled, "local")
    named = name(recording(assembled, build_id(assembled)), where)
    assert named.names[where] == model.Name(str(assembled), "preferred", 0)


def test_a_symbol_without_a_size_extends_to_the_next_one(assembled: Path) -> None:
    start, following = (BASE + value(assembled, symbol) for symbol in ("local", "main"))
    named = name(recording(assembled, build_id(assembled)), following - 1, following).names
    assert named[following - 1] == model.Name(str(assembled), "preferred", following - 1 - start)
    assert named[following].symbol == "main"


def test_addresses_between_symbols_have_no_name(program: Path) -> None:
    assert name(recording(program, build_id(program)), BASE + 0x10).names == {}


def test_another_file_of_the_same_name_is_not_trusted(program: Path) -> None:
    named = name(recording(program, b"\1" * 20), BASE + value(program, "_Z5firstv"))
    assert named.names == {}
    assert named.warnings[0].code == "no-symbols"
    assert "not the one" in named.warnings[0].message


def test_without_a_build_id_only_a_live_process_is_trusted(program: Path) -> None:
    address = BASE + value(program, "_Z5firstv")
    assert name(recording(program, b""), address).names == {}


def test_without_a_build_id_the_file_must_be_the_mapped_one(program: Path, tmp_path: Path) -> None:
    copy = tmp_path / "small"
    copy.write_bytes(program.read_bytes())
    where = BASE + value(program, "_Z5firstv")
    rec = recording(copy, b"")
    rec = rec._replace(target=rec.target._replace(pid=os.getpid()))
    assert name(rec, where, root=None).names[where].symbol == "first()"
    copy.rename(tmp_path / "moved")
    copy.write_bytes(program.read_bytes())
    named = name(rec, where, root=None)
    assert named.names == {}
    assert "not the one" in named.warnings[0].message


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF", b"\x7fELF\2\1\1" + bytes(57), b"text"], ids=repr
)
def test_damaged_files_are_told_of(program: Path, tmp_path: Path, content: bytes) -> None:
    rec = recording(program, build_id(program))
    damaged = tmp_path / "damaged"
    damaged.write_bytes(content)
    moved = [
        model.Mapping(m.start, m.end, m.offset, 1, m.permissions, str(damaged))
        for m in rec.mappings
    ]
    stream = Stream(mappings=moved, modules=[(BASE, str(damaged), b"\1")])
    named = name(decode(wire.frames(io.BytesIO(stream.encoded()))), BASE + 0x1100)
    assert named.names == {}
    assert len(named.warnings) == 1


def test_every_cut_of_a_file_is_survived(program: Path, tmp_path: Path) -> None:
    whole = program.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole)
    rec = recording(cut, b"")
    where = BASE + value(program, "_Z5firstv")
    for length in range(0, len(whole), 97):
        cut.write_bytes(whole[:length])
        named = name(rec._replace(target=rec.target._replace(pid=os.getpid())), where, root=None)
        assert named.names == {} or named.names[where].symbol == "first()"
        assert len(named.warnings) <= 1


def test_variables_are_named_wherever_they_lie(program: Path) -> None:
    rec = recording(program, build_id(program))
    last = max(rec.mappings, key=lambda m: m.end)
    bss = model.Mapping(last.end, last.end + 0x10000, 0, 0, last.permissions, "")
    rec = rec._replace(mappings=(*rec.mappings, bss))
    in_data, in_bss = BASE + value(program, "initialised"), BASE + value(program, "large") + 0x8000
    assert bss.start <= in_bss < bss.end
    named = name(rec, in_data, in_bss + 5).names
    assert named[in_data] == model.Name(str(program), "initialised", 0)
    assert named[in_bss + 5] == model.Name(str(program), "large", 0x8005)


@pytest.fixture(scope="module")
def stripped(program: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the program without its symbols, and the file that holds them."""
    folder = tmp_path_factory.mktemp("stripped")
    debug = folder / "small.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    link = f"--add-gnu-debuglink={debug}"
    subprocess.run(["objcopy", "--strip-all", link, program, folder / "small"], check=True)
    return folder / "small", debug


@pytest.mark.parametrize("place", ["build id", ".", ".debug", "usr/lib/debug"])
def test_separate_debug_files_are_found(
    stripped: tuple[Path, Path],
    program: Path,
    tmp_path: Path,
    place: str,
) -> None:
    bare, debug = stripped
    own_id = build_id(bare)
    folder = {
        "build id": tmp_path / f"usr/lib/debug/.build-id/{own_id.hex()[:2]}",
        "usr/lib/debug": tmp_path / "usr/lib/debug" / bare.parent.relative_to("/"),
    }.get(place, tmp_path / bare.parent.relative_to("/") / place)
    folder.mkdir(parents=True)
    found = folder / (f"{own_id.hex()[2:]}.debug" if place == "build id" else debug.name)
    found.write_bytes(debug.read_bytes())
    module = tmp_path / bare.relative_to("/")
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_bytes(bare.read_bytes())
    where = BASE + value(program, "_Z5firstv")
    rec = recording(bare, own_id)
    assert name(rec, where, root=tmp_path).names[where].symbol == "first()"
    found.write_bytes(Path("/bin/true").read_bytes())  # somebody else's
    assert name(rec, where, root=tmp_path).names == {}


def own_mappings() -> list[model.Mapping]:
    mappings = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, flags, offset, _, inode, *path = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in span.split("-"))
        bits = sum(bit for bit, letter in ((1, "r"), (2, "w"), (4, "x")) if letter in flags)
        mappings.append(
            model.Mapping(start, end, int(offset, 16), int(inode), bits, path[0] if path else "")
        )
    return mappings


def test_the_c_library_of_a_live_process() -> None:
    # One that Python itself does not call: of others a program at fixed addresses has its own stub.
    address = ctypes.cast(ctypes.CDLL("libc.so.6").malloc_info, ctypes.c_void_p).value
    assert address
    stream = Stream(mappings=own_mappings(), modules=[], pid=os.getpid())
    named = name(decode(wire.frames(io.BytesIO(stream.encoded()))), address, root=None)
    assert "malloc_info" in named.names[address].symbol
    assert named.names[address].offset == 0
    assert "libc" in named.names[address].module
