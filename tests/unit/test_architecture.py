"""Who may use whom, and how long things may get."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reachscan.cli import commands
from reachscan.recording.zip_equal import zip_equal

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "reachscan"
NATIVE = ROOT / "native"
LONGEST_FILE = 400
LONGEST_FUNCTION = 40
PYTHON_SOURCES = sorted(PACKAGE.rglob("*.py"))
NATIVE_SOURCES = sorted(p for p in NATIVE.rglob("*.[hc]pp") if "tests" not in p.parts)
ALL_SOURCES = sorted(
    path
    for folder in (PACKAGE, NATIVE, ROOT / "tests", ROOT / "fixtures", ROOT / "benchmarks")
    for pattern in ("*.py", "*.[hc]", "*.[hc]pp")
    for path in folder.rglob(pattern)
)

# A room may use those that are listed for it, and itself. Modules that stand alone in the package
# are rooms of one.
PYTHON_ROOMS = {
    "errors": set[str](),
    "wording": set[str](),
    "recording": {"errors"},
    "judgement": {"recording"},
    "capture": {"errors", "recording", "wording"},
    "naming": {"capture", "errors", "recording", "wording"},
    # The only room that knows of other machines.
    "transport": {"capture", "errors", "naming", "recording", "wording"},
    "grouping": {"capture", "naming", "recording"},
    "result": {"errors", "grouping", "judgement", "naming", "recording"},
    "analyse": {"capture", "errors", "grouping", "naming", "recording", "result"},
    "scanning": {
        *("analyse", "capture", "errors", "naming", "recording", "result", "transport"),
    },
    "history": {
        *("capture", "errors", "grouping", "judgement", "naming", "recording"),
        *("result", "scanning", "wording"),
    },
    "reports": {
        *("__init__", "errors", "grouping", "history", "judgement", "naming", "recording"),
        *("result", "wording"),
    },
    "cli": {
        *("__init__", "analyse", "capture", "errors", "history", "judgement", "recording"),
        *("reports", "result", "scanning", "wording"),
    },
    "__init__": {"capture", "errors", "history", "recording", "result", "scanning"},
    "__main__": {"cli"},
    "config": set(),
    "inside": {"config", "errors"},
    "pytest_plugin": {"errors", "inside"},
}

# A folder stands for what is below it and not listed itself.
NATIVE_ROOMS = {
    "arch": set[str](),
    "freestanding": {"arch"},
    "wire": {"arch"},
    # What lies in the memory of a recorded process: the seam between recorder and sweeper.
    "recorder/tables.hpp": set[str](),
    # What the helper and a recorder that it has put into a process tell each other.
    "recorder/injection.hpp": {"arch"},
    # What functions that are compiled with -finstrument-functions call.
    "instrumented": {"arch"},
    "recorder": {
        *("arch", "freestanding", "instrumented", "recorder/injection.hpp"),
        "recorder/tables.hpp",
    },
    # What a program says about its memory, as it lies there.
    "library/annotations.hpp": set[str](),
    "library/include": set[str](),
    "library": {
        *("arch", "instrumented", "library/annotations.hpp", "library/include"),
        *("recorder/tables.hpp", "wire"),
    },
    "memory": {"arch", "wire"},
    "libc": {"arch", "memory"},
    "heaps": {"arch", "libc", "memory"},
    "heaps/glibc": {"arch", "heaps", "libc", "memory"},
    "heaps/iterated": {"heaps", "memory"},
    "heaps/jemalloc": {"arch", "heaps", "libc"},
    "heaps/mimalloc": {"heaps"},
    "heaps/musl": {"arch", "heaps"},
    "heaps/pools": {"heaps", "library/annotations.hpp"},
    "heaps/pymalloc": {"heaps"},
    "heaps/scudo": {"heaps", "libc", "memory"},
    "heaps/tcmalloc": {"heaps", "libc"},
    "sweeper/blob": {"arch", "heaps", "wire"},
    "sweeper/mark": {"arch", "memory", "sweeper/blob"},
    "sweeper/roots": {
        *("heaps/pymalloc", "library/annotations.hpp", "libc", "memory", "sweeper/blob"),
        "sweeper/mark",
    },
    "sweeper/python": {"memory", "sweeper/blob", "sweeper/mark"},
    # The one that knows all walkers. A walker knows the contract, but no other walker.
    "heaps/detect.hpp": {
        *("heaps", "heaps/glibc", "heaps/iterated", "heaps/jemalloc", "heaps/mimalloc"),
        *("heaps/musl", "heaps/pools", "heaps/pymalloc", "heaps/scudo", "heaps/tcmalloc"),
    },
    "sweeper/search": {"arch", "sweeper/blob", "sweeper/mark"},
    "sweeper/blocks": {
        *("arch", "memory", "recorder/tables.hpp", "sweeper/blob", "sweeper/mark"),
        *("sweeper/python", "sweeper/roots"),
    },
    "sweeper/meanings": {
        *("arch", "libc", "memory", "sweeper/blob", "sweeper/mark", "sweeper/python"),
        "sweeper/search",
    },
    "sweeper/stale": {
        *("memory", "sweeper/blob", "sweeper/blocks", "sweeper/mark", "sweeper/python"),
        *("sweeper/roots", "sweeper/search"),
    },
    "sweeper/leaks": {
        *("sweeper/blob", "sweeper/blocks", "sweeper/mark", "sweeper/meanings"),
        *("sweeper/python", "sweeper/roots", "sweeper/stale"),
    },
    "sweeper/queries": {
        *("sweeper/blob", "sweeper/blocks", "sweeper/leaks", "sweeper/mark"),
        "sweeper/roots",
    },
    "sweeper": {
        *("freestanding", "heaps/detect.hpp", "sweeper/blob", "sweeper/blocks"),
        *("sweeper/leaks", "sweeper/mark", "sweeper/python", "sweeper/queries"),
        "sweeper/roots",
    },
    "helper": {
        *("arch", "helper/capture", "helper/core", "helper/recording", "helper/stop"),
        *("helper/sweep", "helper/target", "wire"),
    },
    "helper/target": {"arch", "helper", "wire"},
    "helper/stop": {"arch", "helper", "helper/target", "wire"},
    "helper/capture": {"arch", "helper", "helper/stop", "helper/target", "libc", "wire"},
    "helper/core": {"arch", "helper", "helper/capture", "helper/stop", "helper/target", "wire"},
    "helper/recording": {
        *("arch", "helper", "helper/capture", "helper/stop", "helper/target", "libc"),
        *("recorder/injection.hpp", "recorder/tables.hpp", "wire"),
    },
    "helper/sweep": {
        *("arch", "helper", "helper/capture", "helper/stop", "helper/target"),
        *("recorder/tables.hpp", "wire"),
    },
}
# What every room of the helper may use of its front door.
HELPER_BASE = {"failure.hpp", "fault_injection.hpp", "images.hpp", "options.hpp", "stream.hpp"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    """Return the room of what is imported: a folder of the package, or a module of it."""
    parts = module.split(".")
    first = parts[1] if len(parts) > 1 else "__init__"
    is_room = (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").exists()
    return first if is_room else "__init__"


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PYTHON_SOURCES, ids=shown)
def test_python_rooms_use_only_what_they_may(path: Path) -> None:
    inside = path.relative_to(PACKAGE)
    room = inside.parts[0] if len(inside.parts) > 1 else inside.stem
    used = {room_of(name) for name in imports(path) if name.split(".")[0] == "reachscan"}
    assert used - {room} <= PYTHON_ROOMS[room]


def native_room(path: str) -> str:
    """Return the room of a path below native/: the file, or the innermost folder that is one."""
    folders = path.split("/")
    while "/".join(folders) not in NATIVE_ROOMS:
        folders.pop()
    return "/".join(folders)


@pytest.mark.parametrize("path", NATIVE_SOURCES, ids=shown)
def test_native_rooms_use_only_what_they_may(path: Path) -> None:
    room = native_room(str(path.relative_to(NATIVE)))
    for included in re.findall(r'#include "([^"]+)"', path.read_text()):
        used = native_room(included)
        assert used == room or used in NATIVE_ROOMS[room], f"{room} may not use {included}"
        if used == "helper" != room:
            assert Path(included).name in HELPER_BASE, f"{room} may not use {included}"


def test_the_pictures_show_what_may_be_used() -> None:
    pictures = re.findall(
        r"```mermaid\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    for picture, rooms in zip_equal(pictures, (PYTHON_ROOMS, NATIVE_ROOMS)):
        names = dict(re.findall(r'(\w+)\["([^"]+)"\]', picture))
        arrows = [
            (names.get(user, user), names.get(used, used))
            for user, used in re.findall(r"^  (\w+) --> (\w+)", picture, re.MULTILINE)
        ]
        for user, used in arrows:
            assert used in rooms[user], f"{user} --> {used}"
        folders = {room for room in rooms if rooms is NATIVE_ROOMS or (PACKAGE / room).is_dir()}
        assert folders <= {room for arrow in arrows for room in arrow}


@pytest.mark.parametrize("rooms", [PYTHON_ROOMS, NATIVE_ROOMS], ids=["python", "native"])
def test_rooms_have_no_circles(rooms: dict[str, set[str]]) -> None:
    # The helper's rooms share some headers of its front door, which use nothing but the wire.
    below = {
        room: {r for r in used if not (r == "helper" and room.startswith("helper/"))}
        for room, used in rooms.items()
    }
    while below:
        ground = {room for room, used in below.items() if not used & below.keys()}
        assert ground, f"a circle among {sorted(below)}"
        below = {room: used for room, used in below.items() if room not in ground}


def test_every_room_is_there() -> None:
    folders = {p.parent.relative_to(PACKAGE).parts[:1] for p in PYTHON_SOURCES}
    assert {room for (room,) in filter(None, folders)} <= PYTHON_ROOMS.keys()
    for room in PYTHON_ROOMS:
        assert (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists()
    assert all((NATIVE / room).exists() for room in NATIVE_ROOMS)


def test_a_command_uses_no_other_command() -> None:
    files = {path.stem: path for path in (PACKAGE / "cli/commands").glob("*.py")}
    shared = {
        "__init__",
        "asking",
        "decorators",
        "durations",
        "formats",
        "leaks",
        "options",
        "paths",
        "recording",
    }
    assert files.keys() == commands.SUMMARIES.keys() | shared
    for name in files.keys() - shared:
        others = {f"reachscan.cli.commands.{other}" for other in files.keys() - shared}
        assert not set(imports(files[name])) & others


def opening(path: Path) -> str:
    """Return what a file begins with: its docstring, or the comment before all code."""
    text = path.read_text()
    if path.suffix == ".py":
        return ast.get_docstring(ast.parse(text)) or ""
    comment = itertools.takewhile(lambda line: line.startswith("//"), text.splitlines())
    return " ".join(line.removeprefix("//").strip() for line in comment)


@pytest.mark.parametrize("path", ALL_SOURCES, ids=shown)
def test_each_file_opens_with_a_sentence_that_says_what_it_is(path: Path) -> None:
    assert re.match(r"\S+( \S+){2,}?[.:?]( |$)", opening(path).replace("\n", " "))


@pytest.mark.parametrize("path", PYTHON_SOURCES, ids=str)
def test_compiling_imports_nothing(path: Path) -> None:
    """For names of characters it imports a module: an interrupt there is a syntax error to it."""
    assert "\\N{" not in path.read_text()


@pytest.mark.parametrize("path", PYTHON_SOURCES, ids=shown)
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    called = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    talk = {"print", "sys.exit", "click.echo", "sys.stdout.write", "sys.stderr.write"}
    # Compilers' options are asked for by `python -m reachscan.config`, which is no part of it.
    allowed = {"cli/console.py": talk, "cli/main.py": {"sys.exit"}, "config.py": {"print"}}
    assert not called & (talk - allowed.get(str(path.relative_to(PACKAGE)), set()))


@pytest.mark.parametrize("path", ALL_SOURCES, ids=shown)
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE


@pytest.mark.parametrize("path", PYTHON_SOURCES, ids=shown)
def test_python_functions_stay_small(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = [
                line
                for n in node.body[bool(ast.get_docstring(node)) :]
                for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)
            ]
            assert len(set(body)) <= LONGEST_FUNCTION, f"{node.name} is too long"


_OF_ONE_PROCESSOR = re.compile(
    r"\b(r[abcd]x|r[sd]i|r[sbi]p|r(8|9|1[0-5])|orig_rax|fs_base|eflags|user_regs_struct|int3|avx2"
    r"|EM_X86_64|__x86_64__)\b|arch/x86_64"
)


@pytest.mark.parametrize(
    "path", [p for p in NATIVE_SOURCES if "arch" not in p.relative_to(NATIVE).parts], ids=shown
)
def test_what_differs_by_processor_is_in_its_folder(path: Path) -> None:
    assert not _OF_ONE_PROCESSOR.findall(path.read_text())


# clang-format puts the brace of a function's body at the end of a line, and the closing one below
# the first word of its declaration; what has neither parameters nor a body is no function.
_HEAD = re.compile(
    r"^( *)(?!namespace|struct|class|enum|union|if|for|while|switch|do|else|extern)\w"
)


def native_functions(text: str) -> Iterator[tuple[str, int]]:
    """Yield the first line of each function with a body, and how many lines the body has."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        head = _HEAD.match(line)
        if not head or not line.rstrip().endswith("{") or "(" not in line:
            continue
        indent = head[1]
        if indent not in ("", "  "):
            continue
        end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith(f"{indent}}}")), i)
        yield line.strip(), end - i - 1


@pytest.mark.parametrize("path", NATIVE_SOURCES, ids=shown)
def test_native_functions_stay_small(path: Path) -> None:
    for name, length in native_functions(path.read_text()):
        assert length <= LONGEST_FUNCTION, f"{name} has {length} lines"
