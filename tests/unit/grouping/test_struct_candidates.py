"""Structs that blocks could be: read from what a compiler wrote, matched against words."""

from __future__ import annotations

import io
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import HEAP_START, Leak, Stream

from reachscan.analyse import analyse
from reachscan.grouping import struct_candidates
from reachscan.grouping.signatures import DATA, FIRST_PLACE, HEAP, INT, TEXT, ZERO
from reachscan.naming import dwarf, elf_files, type_names
from reachscan.naming.dwarf import ANY, FUNCTION, NOTHING, OTHER, POINTER, WORD, Struct
from reachscan.naming.untrusted_files import UnusableFileError
from reachscan.recording import wire
from reachscan.recording.decode import decode

SOURCE = """
namespace app {
struct Plain { char* name; long id; double when; int a, b; };
struct Base { virtual ~Base() {} void* owner; };
struct Derived : Base { void (*call)(int); char text[8]; };
struct Inner { char pad[4]; Plain* in; };
struct Mixed { union { void* p; long n; } either; int small; Inner inner; };
struct Array { Plain* slots[3]; static int shared; };
typedef struct { short few[2]; Plain* behind_padding; } Named;
struct Empty {};
struct Forward;
Plain plain; Derived derived; Mixed mixed; Array array; Named named; Empty empty; Forward* forward;
}
int main() { return (int)app::plain.id + sizeof app::array + sizeof app::named; }
"""

STRUCTS = {
    Struct("app::Plain", 32, (POINTER, WORD, OTHER, OTHER)),
    Struct("app::Base", 16, (POINTER, POINTER)),
    Struct("app::Derived", 32, (POINTER, POINTER, FUNCTION, OTHER)),
    Struct("app::Mixed", 32, (ANY, OTHER, OTHER, POINTER)),
    Struct("app::Inner", 16, (OTHER, POINTER)),
    Struct("app::Array", 24, (POINTER, POINTER, POINTER)),
    Struct("app::Named", 16, (OTHER, POINTER)),
    Struct("app::Empty", 1, (NOTHING,)),
}


@pytest.fixture(scope="module", params=["-gdwarf-4", "-gdwarf-5"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("structs")
    (folder / "structs.cpp").write_text(SOURCE)
    command = ["g++", request.param, "-O0", "-o", "structs", "structs.cpp"]
    subprocess.run(command, check=True, cwd=folder)
    return folder / "structs"


def read(path: Path, seconds: float = 100) -> set[Struct]:
    with elf_files.opened(lambda: path.open("rb")) as elf:
        assert dwarf.size_of_debug_information(elf) > 0
        deadline = time.monotonic() + seconds
        return set(dwarf.structs(elf, lambda size: size > 0, deadline))


def test_structs_are_read_as_they_lie_in_memory(program: Path) -> None:
    assert {struct for struct in read(program) if struct.name.startswith("app::")} == STRUCTS


def test_reading_ends_when_it_should(program: Path) -> None:
    with pytest.raises(dwarf.OutOfTimeError):
        read(program, seconds=-1)


def test_damaged_debug_information_does_no_harm(program: Path, tmp_path: Path) -> None:
    whole = bytearray(program.read_bytes())
    with elf_files.opened(lambda: program.open("rb")) as elf:
        section = elf.get_section_by_name(".debug_info")
        assert section
        begin, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
    damaged = tmp_path / "damaged"
    header = 16  # of the first unit
    for at in (*range(begin, begin + header), *range(begin + header, end, 41)):
        damaged.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            read(damaged, seconds=5)
        except (UnusableFileError, dwarf.OutOfTimeError):
            continue


@pytest.mark.parametrize(
    ("size", "usable"), [(1, 24), (24, 24), (25, 40), (40, 40), (41, 56), (120, 120)]
)
def test_structs_fit_the_blocks_that_glibc_gives_them(size: int, usable: int) -> None:
    assert [u for u in range(24, 200, 16) if struct_candidates.fits(size, u)] == [usable]


PLACE, MIXED = FIRST_PLACE + 1, FIRST_PLACE + 9


@pytest.mark.parametrize(
    ("words", "codes", "score"),
    [
        ([POINTER, POINTER], [HEAP, ZERO], 1),
        ([POINTER, FUNCTION], [HEAP, PLACE], 3),
        ([POINTER, FUNCTION], [HEAP, HEAP], None),
        ([OTHER, POINTER], [HEAP, HEAP], None),
        ([NOTHING], [PLACE], None),
        ([POINTER], [INT], None),
        ([POINTER], [TEXT], None),
        ([POINTER], [DATA], None),
        ([FUNCTION], [DATA], None),
        ([WORD, ANY], [HEAP, INT], 0),
        ([OTHER, POINTER], [MIXED, MIXED], 0),
        ([], [HEAP], 0),
    ],
)
def test_pointers_decide(words: list[str], codes: list[int], score: int | None) -> None:
    assert struct_candidates._score(Struct("s", 24, tuple(words)), codes, MIXED) == score


@given(
    st.lists(st.sampled_from([POINTER, FUNCTION, WORD, OTHER, ANY, NOTHING]), max_size=4),
    st.lists(st.integers(0, MIXED), max_size=4),
)
def test_what_is_zero_or_mixed_excludes_nothing(words: list[str], codes: list[int]) -> None:
    struct = Struct("s", 24, tuple(words))
    assert struct_candidates._score(struct, [ZERO if c != MIXED else c for c in codes], MIXED) == 0


def fitting(*names: str) -> tuple[str, ...]:
    leaks = [Leak(24, [HEAP_START, HEAP_START + 8, HEAP_START + 16])]
    recording = decode(wire.frames(io.BytesIO(Stream(leaks=leaks).encoded())))
    folded = analyse(recording, root="/")
    structs = [Struct(name, 24, (POINTER, POINTER, POINTER)) for name in names]
    return struct_candidates._fitting(folded, 0, 24, structs)


def test_names_are_short_and_those_that_people_know_come_first() -> None:
    allocator = "std::allocator<int> "
    base, vector = f"std::_Vector_base<int, {allocator}>", f"std::vector<int, {allocator}>"
    assert fitting(base, vector, "app::Node<std::_List_node<int>>") == (
        "app::Node<std::_List_node<int>>",
        "std::vector<int>",
    )
    assert fitting(base) == ("std::_Vector_base<int>",)
    assert len(fitting(*"abcdefgh")) == struct_candidates.SHOWN
    (long,) = fitting(f"std::map<{', '.join(f'app::T<{i}>' for i in range(100))}>")
    assert len(long) <= type_names.READABLE


def test_files_are_read_as_a_whole_as_far_as_there_is_room() -> None:
    sizes = [(100, "program"), (60, "large.so"), (50, "small.so")]
    assert list(struct_candidates._within(sizes, 155)) == ["program", "small.so"]
    assert list(struct_candidates._within(sizes, 99)) == ["large.so"]
