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
from reachscan.errors import ExitStatus

PAGE = Path(__file__).parents[3] / "docs/reachscan.1"
OPTION = re.compile(r"^\.TP\n(\\fB--?.*)\n(.*)\n\.br\nCommands: (.*)\.$", re.MULTILINE)

Options = dict[tuple[str, ...], dict[str, tuple[str, str]]]
"""Names of an option -> command -> the option's value and its help."""


def text(roff: str) -> str:
    """Return a line of the page as it is read."""
    return re.sub(r"\\f.", "", roff).replace("\\-", "-").replace("\\(aq", "'")


def told() -> Options:
    """Return the options that the page describes."""
    found: Options = {}
    for names, help_, takers in OPTION.findall(PAGE.read_text().replace("\\-", "-")):
        spelled = tuple(re.findall(r"\\fB(-[-a-z]+)\\fR", names))
        value = "".join(re.findall(r"\\fI(.+)\\fR", names))
        for command in takers.split(", "):
            of_commands = found.setdefault(spelled, {})
            assert command not in of_commands, f"{spelled} of {command} is described twice"
            of_commands[command] = value, text(help_)
    return found


def value_of(option: click.Option) -> str:
    """Return what is written behind an option."""
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "" if option.is_flag else option.metavar or option.type.name.upper()


def taken() -> Options:
    """Return the options that the program takes."""
    found: Options = {}
    for name in commands.SUMMARIES:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        for option in command.params:
            if isinstance(option, click.Option):
                spelled = (*option.opts, *option.secondary_opts)
                help_ = (option.help or "").replace("`", "")
                found.setdefault(spelled, {})[name] = value_of(option), help_
    return found


def test_the_page_has_the_options_of_the_program() -> None:
    assert told() == taken()


def test_the_page_has_the_commands_of_the_program() -> None:
    section = PAGE.read_text().partition(".SH COMMANDS")[2].partition(".SH")[0]
    assert re.findall(r"^\\fB(\w+)\\fR$", section, re.MULTILINE) == list(commands.SUMMARIES)


def test_the_pages_have_the_exit_statuses_of_the_program() -> None:
    section = PAGE.read_text().partition(".SH EXIT STATUS")[2].partition(".SH")[0]
    table = (PAGE.parents[1] / "README.md").read_text().partition("| exit status |")[2]
    on_the_page = re.findall(r"^\.TP\n([\d, ]+)$", section, re.MULTILINE)
    in_the_readme = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
    for told_of in (on_the_page, in_the_readme):
        assert sorted(int(number) for number in ", ".join(told_of).split(", ")) == sorted(
            ExitStatus
        )


@pytest.mark.skipif(not shutil.which("groff"), reason="nothing to check the page with: groff")
def test_the_page_is_well_formed() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(PAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
