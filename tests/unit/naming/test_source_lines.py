"""Lines and inlined functions from DWARF, compared with what addr2line says."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from reachscan.naming import debug_files, source_lines
from reachscan.naming.source_lines import Place
from reachscan.naming.untrusted_files import Root

SOURCE = """
#include <cstdlib>
#include <cstring>
namespace app {
struct Session { char name[64]; };
static inline __attribute__((always_inline)) void* raw(unsigned n) { return std::malloc(n); }
inline __attribute__((always_inline)) Session* make(int n) {
  return static_cast<Session*>(raw(n));
}
__attribute__((noinline)) Session* open_session(int n) {
  Session* session = make(n * 3);
  session->name[0] = 1;
  return session;
}
template <typename T>
struct Pool {
  __attribute__((noinline)) T* get(int n) {
    for (int i = 0; i < n; ++i) last = open_session(n + i);
    {
      T* more = make(n);
      std::memset(more, 0, sizeof *more);
    }
    return last;
  }
  T* last = nullptr;
};
}  // namespace app
extern "C" __attribute__((noinline)) void* plain(int n) { return strdup("x") + n; }
extern "C" __attribute__((noinline)) char* caller(int n) {
  auto copy = [n](const char* text) { return strdup(text) + n; };
  return copy("y");
}
int main(int argc, char**) {
  app::Pool<app::Session> pool;
  return pool.get(argc)->name[2] + (plain(argc) != caller(argc));
}
"""

BUILDS = [
    *(("g++", f"-gdwarf-{version}", f"-O{level}") for version in (4, 5) for level in (0, 2)),
    *(("clang++", f"-gdwarf-{version}", "-O2") for version in (4, 5)),
    ("g++", "-g", "-O2", "-ffunction-sections", "-freorder-blocks-and-partition"),
]


def need(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def built(folder: Path, *command: str) -> Path:
    need(command[0])
    source, program = folder / "made.cpp", folder / "made"
    source.write_text(SOURCE)
    subprocess.run([*command, str(source), "-o", str(program)], check=True, cwd=folder)
    return program


def calls(program: Path) -> list[int]:
    """Return the addresses of the last byte of each call of the program's own code."""
    lines = subprocess.run(
        [need("objdump"), "-d", "--no-show-raw-insn", "-j", ".text", str(program)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found = []
    for line, after in zip(lines, lines[1:]):
        following = re.match(r"\s*([0-9a-f]+):", after)
        if re.search(r"\bcallq?\b", line) and following:
            found.append(int(following[1], 16) - 1)
    return found


def told(program: Path, addresses: list[int]) -> dict[int, list[tuple[str, int | None]]]:
    """Return file and line of each function at each address, as addr2line says."""
    answer = subprocess.run(
        [need("addr2line"), "-aife", str(program), *map(hex, addresses)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found: dict[int, list[tuple[str, int | None]]] = {}
    at = 0
    while at < len(answer):
        if answer[at].startswith("0x"):
            here = found.setdefault(int(answer[at], 16), [])
            at += 1
            continue
        file, _, line = answer[at + 1].rpartition(":")
        number = re.match(r"\d+", line)
        here.append((file, int(number[0]) if number else None))
        at += 2
    # Of code without debug information it names the file by a symbol, or nothing.
    return {address: rows for address, rows in found.items() if rows[0][1] is not None}


def places(
    path: Path, addresses: list[int], supplement: Path | None = None
) -> dict[int, list[Place]]:
    with path.open("rb") as file:
        elf = ELFFile(file)
        if supplement is None:
            return source_lines.places(elf, None, addresses, time.monotonic() + 60)
        with supplement.open("rb") as other:
            return source_lines.places(elf, ELFFile(other), addresses, time.monotonic() + 60)


def lines(found: dict[int, list[Place]]) -> dict[int, list[tuple[str | None, int | None]]]:
    return {address: [(p.file, p.line) for p in rows] for address, rows in found.items()}


@pytest.mark.parametrize("command", BUILDS, ids=" ".join)
def test_every_call_is_where_addr2line_says(tmp_path: Path, command: tuple[str, ...]) -> None:
    program = built(tmp_path, *command)
    addresses = calls(program)
    expected = told(program, addresses)
    assert len(expected) >= 4
    found = places(program, addresses)
    assert lines({a: found[a] for a in expected}) == expected


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_functions_are_named_as_in_the_source(tmp_path: Path, compiler: str) -> None:
    program = built(tmp_path, compiler, "-g", "-O2")
    found = places(program, calls(program)).values()
    names = [[place.function for place in rows] for rows in found]
    (way,) = (row for row in names if row[-1] == "app::open_session(int)")
    assert way[0] in ("app::raw", "app::raw(unsigned int)")
    assert way[1:] == ["app::make(int)", "app::open_session(int)"]
    assert ["plain"] in names and ["main"] in [row[-1:] for row in names]
    assert any("app::Pool<app::Session>::get(int)" in row for row in names)
    ((anonymous, _),) = (row for row in names if row[-1] == "caller")
    pattern = r"<lambda>::operator\(\)|caller::.*::operator\(\)\(.*"
    assert anonymous and re.fullmatch(pattern, anonymous)
    for rows in found:
        assert [place.inlined for place in rows] == [True] * (len(rows) - 1) + [False]


def test_shared_debug_information_is_found(tmp_path: Path) -> None:
    """As distributions pack it: in a file of its own, and what several files share in one more."""
    roots = [Root(tmp_path, 0)]
    folder = tmp_path / "usr/lib/debug/.dwz"
    folder.mkdir(parents=True)
    debugs = []
    for name in ("one", "two"):
        made = built(tmp_path, "g++", "-g", "-O2", f"-DNAME_{name}", "-Wl,--build-id=sha1")
        program = made.rename(tmp_path / name)
        addresses = calls(program)
        expected = told(program, addresses)
        debug = tmp_path / f"{name}.debug"
        need("objcopy")
        subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
        debugs.append(debug)
    need("dwz")
    shared = folder / "shared"
    command = ["dwz", "-m", str(shared), "-M", "/usr/lib/debug/.dwz/shared", *map(str, debugs)]
    subprocess.run(command, check=True)
    with debugs[1].open("rb") as file:
        elf = ELFFile(file)
        assert elf.get_section_by_name(".gnu_debugaltlink") is not None
        with debug_files.supplement(elf, "/two", roots) as found:
            assert found is not None
            here = source_lines.places(elf, found, addresses, time.monotonic() + 60)
    assert lines({a: here[a] for a in expected}) == expected
    # Another file under that name is not the one.
    shutil.copy(debugs[0], shared)
    with (
        debugs[1].open("rb") as file,
        debug_files.supplement(ELFFile(file), "/two", roots) as found,
    ):
        assert found is None


def test_rust_names_are_read(tmp_path: Path) -> None:
    source = tmp_path / "made.rs"
    source.write_text(
        """
        #[inline(never)]
        pub fn grow(names: &mut Vec<String>, n: usize) { names.push("x".repeat(n)); }
        fn main() {
            let mut names = Vec::new();
            grow(&mut names, std::env::args().count());
            println!("{}", names.len());
        }
        """
    )
    program = tmp_path / "made"
    command = [need("rustc"), "-g", "-O", "-C", "symbol-mangling-version=v0"]
    subprocess.run([*command, str(source), "-o", str(program)], check=True)
    found = places(program, calls(program)[:2000])
    functions = {place.function for rows in found.values() for place in rows}
    assert "made::grow" in functions and "made::main" in functions


def test_reading_ends_in_time(tmp_path: Path) -> None:
    program = built(tmp_path, "g++", "-g", "-O2")
    with program.open("rb") as file:
        assert source_lines.places(ELFFile(file), None, calls(program), time.monotonic() - 1) == {}


def test_a_file_without_debug_information_says_nothing(tmp_path: Path) -> None:
    program = built(tmp_path, "g++", "-O2")
    assert places(program, calls(program)) == {}
