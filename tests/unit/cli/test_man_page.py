"""The manual page tells of the same commands and options as --help."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from reachscan.cli import commands
from reachscan.cli.program import program

PAGE = Path(__file__).parents[3] / "docs/reachscan.1"
OPTION = re.compile(r"^\.TP\n(\\fB--?.*)\n(.*)\n\.br\nCommands: (.*)\.$", re.MULTILINE)

Options = dict[tuple[str, ...], dict[str, str]]


def text(roff: str) -> str:
    """Return a line of the page as it is read."""
    return re.sub(r"\\f.", "", roff).replace("\\-", "-").replace("\\(aq", "'")


def told() -> Options:
    """Return what the page says: names of an option -> command -> help."""
    found: Options = {}
    for names, help_, takers in OPTION.findall(PAGE.read_text().replace("\\-", "-")):
        spelled = tuple(re.findall(r"\\fB(-[-a-z]+)\\fR", names))
        found.setdefault(spelled, {}).update(dict.fromkeys(takers.split(", "), text(help_)))
    return found


def taken() -> Options:
    """Return the same as the program has it."""
    found: Options = {}
    for name in commands.SUMMARIES:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                spelled = (*option.opts, *option.secondary_opts)
                found.setdefault(spelled, {})[name] = (option.help or "").replace("`", "")
    return found


def test_the_page_has_the_options_of_the_program() -> None:
    assert told() == taken()


def test_the_page_has_the_commands_of_the_program() -> None:
    section = PAGE.read_text().partition(".SH COMMANDS")[2].partition(".SH")[0]
    assert re.findall(r"^\\fB(\w+)\\fR$", section, re.MULTILINE) == list(commands.SUMMARIES)


@pytest.mark.skipif(not shutil.which("groff"), reason="nothing to check the page with: groff")
def test_the_page_is_well_formed() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
