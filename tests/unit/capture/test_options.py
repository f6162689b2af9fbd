"""Options are the same from the command line to the helper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest

from reachscan.capture.options import Question, ScanOptions
from reachscan.cli.commands import options

NATIVE = Path(__file__).resolve().parents[3] / "native" / "helper" / "options.cpp"

ALL = ScanOptions(
    method="copy",
    threads=3,
    nice=5,
    timeout=1.5,
    max_pause=20,
    contents=8,
    verbose=True,
    digests=True,
    question=Question("explain", 0x1000),
)


@click.command()
@options.capture
@options.confirm
@options.thorough
@options.save
@options.elsewhere
@options.python
@options.verbose
def command(**given: Any) -> ScanOptions:
    return options.scan(given)


def test_options_of_the_command_line_are_fields() -> None:
    # The report's, what no option asks for, and those of `core` and `where`.
    ours = {"contents", "digests", "question", "root", "recorder", "lost_before"}
    ours |= {"recorded_only", "known_leaks"}
    assert {parameter.name for parameter in command.params} == set(ScanOptions._fields) - ours


def test_the_command_line_and_the_library_have_the_same_defaults() -> None:
    assert command.main([], standalone_mode=False) == ScanOptions()


def test_every_option_arrives_at_the_helper() -> None:
    assert ALL.arguments(42) == [
        *("--pid", "42", "--method", "copy", "--max-pause", "20", "--contents", "8"),
        *("--explain", "0x1000", "--nice", "5", "--threads", "3", "--timeout", "2"),
        *("--digests", "--verbose"),
    ]
    assert ALL._replace(root="/srv").core_arguments("core.1") == [
        *("--core", "core.1", "--root", "/srv", "--contents", "8"),
        *("--explain", "0x1000", "--nice", "5", "--threads", "3", "--timeout", "2"),
        *("--digests", "--verbose"),
    ]


@pytest.mark.parametrize("about", ["explain", "refs", "heap"])
def test_the_helper_knows_all_words(about: str) -> None:
    known = re.findall(r'\{"([a-z-]+)", (?:required|no)_argument', NATIVE.read_text())
    asked = ALL._replace(question=Question(about, 0x1000))
    words = asked.arguments(42) + asked.core_arguments("core.1")
    assert {word.removeprefix("--") for word in words if word.startswith("--")} <= set(known)


def test_taking_options_leaves_those_of_the_report() -> None:
    given = {"method": "copy", "save": None, "contents": None, "limit": 3}
    assert options.scan(given) == ScanOptions(method="copy")
    assert given == {"contents": None, "limit": 3}
