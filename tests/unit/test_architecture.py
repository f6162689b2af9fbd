"""Who may use whom."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from reachscan.cli import commands

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "reachscan"
NATIVE = ROOT / "native"
LONGEST_FILE = 400
LONGEST_FUNCTION = 40

MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] == "reachscan"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_uses_the_command_line(path: Path) -> None:
    used = ours(path)
    assert path.name == "__main__.py" or "reachscan.cli.main" not in used
    if path.name not in ("cli.py", "command_line.py") and path.parent.name != "commands":
        assert not any(
            name.startswith(("reachscan.cli.commands", "reachscan.cli.console")) for name in used
        )


def test_a_command_uses_no_other_command() -> None:
    files = {path.stem: path for path in (PACKAGE / "commands").glob("*.py")}
    shared = {"__init__", "asking", "leaks", "options"}
    assert files.keys() == commands.SUMMARIES.keys() | shared
    for name in files.keys() - shared:
        others = {f"reachscan.cli.commands.{other}" for other in files.keys() - shared}
        assert not ours(files[name]) & others


@pytest.mark.parametrize("name", ["model.py", "errors.py"])
def test_model_and_errors_use_nothing_of_ours(name: str) -> None:
    assert not ours(PACKAGE / name)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_command_line_prints_or_exits(path: Path) -> None:
    called = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    talk = {"print", "sys.exit", "click.echo", "sys.stdout.write", "sys.stderr.write"}
    allowed = {"console.py": talk, "cli.py": {"sys.exit"}}.get(path.name, set())
    assert not called & (talk - allowed)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = [
                line
                for n in node.body[bool(ast.get_docstring(node)) :]
                for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)
            ]
            assert len(set(body)) <= LONGEST_FUNCTION, f"{node.name} is too long"


FORBIDDEN = {
    "helper": {"sweeper", "heaps"},
    "wire": {"helper", "sweeper", "heaps", "arch"},
    "arch": {"helper", "sweeper", "heaps", "wire"},
    "heaps": {"helper", "sweeper"},
}


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_native_programs_share_only_what_they_should(folder: str) -> None:
    for path in (NATIVE / folder).rglob("*.[hc]pp"):
        used = re.findall(r'#include "(?:\.\./)*(\w+)/', path.read_text())
        assert not set(used) & FORBIDDEN[folder], path
