"""The command line: commands and their options."""

from __future__ import annotations

import shlex
from importlib import import_module
from typing import TYPE_CHECKING, cast

import click

from reachscan import __version__, errors
from reachscan.cli import commands, console
from reachscan.errors import ExitStatus

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_HELP = """Find heap memory in a running process that nothing points to any more.

\b
  reachscan 4711                       what does process 4711 leak?
  reachscan redis-server --json        by name; report as JSON
  reachscan 4711 --save day1.rsc       save the scan, to report on it later
  reachscan --on ssh:build7 4711       on another machine
  reachscan report day1.rsc --all      every leaked block in that scan
  reachscan where 4711                 who allocates what it leaks?

The process is paused for a moment and runs on unharmed. All options of a
command: reachscan scan --help"""

_EPILOG = (
    "Exit status: 0 no leaks or only possible ones, 1 leaks, 2 bad usage, 3 scan failed, 70 bug."
)


def run(words: list[str]) -> int | None:
    """Run the command line, and return an exit status.

    Raises:
        KeyboardInterrupt: the user interrupted it.
        ReachscanError: the command failed.
    """
    try:
        status: int | None = program.main(words, "reachscan", standalone_mode=False)
    except click.ClickException as error:
        explained = _with_meant_command(error, words)
        console.on_stderr(explained.show)  # click would use stdout for a closed stderr
        return explained.exit_code
    except errors.NoSuchProcessError as error:
        meant = _meant_command(words)
        if reader := _reader_of_file(words):
            error.next_step = f"there is a file of that name: `reachscan {reader}` reads it"
        elif meant:
            error.next_step += f", or did you mean the command `reachscan {meant}`?"
        raise
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit:  # raised by click: the reader of the help has exited
        return ExitStatus.CLEAN
    return status


_USUAL = "scan"
"""The command to run if none is named."""
_ELF, _ELF_TYPE, _CORE = b"\x7fELF", slice(16, 18), b"\4\0"
_ALIKE = 0.7
"""How alike a word must be to a command to be taken for it: `redis` is no `refs`."""


def _with_meant_command(error: click.ClickException, words: list[str]) -> click.ClickException:
    """Return what to say where a mistyped command has made `scan` refuse the rest."""
    meant = _meant_command(words)
    if not meant or not isinstance(error, click.UsageError):
        return error
    context = error.ctx.find_root() if error.ctx else None
    return click.UsageError(
        f"there is no command {words[0]!r}; did you mean `reachscan {meant}`?", context
    )


def _meant_command(words: list[str]) -> str | None:
    """Return the command that a first word, which is none, was probably meant to be."""
    if not words or words[0] in commands.SUMMARIES:
        return None
    if words[0] == "help":
        return "--help"
    import difflib

    return next(iter(difflib.get_close_matches(words[0], commands.SUMMARIES, 1, _ALIKE)), None)


def _reader_of_file(words: list[str]) -> str | None:
    """Return the command for a file that was given instead of a process; None if it is none."""
    name = next((word for word in words if word != _USUAL and not word.startswith("-")), "")
    try:
        with open(name, "rb") as file:  # noqa: PTH123
            head = file.read(_ELF_TYPE.stop)
    except (OSError, ValueError):
        return None
    if not head.startswith(_ELF):
        return f"report {shlex.quote(name)}"
    return f"core {shlex.quote(name)}" if head[_ELF_TYPE] == _CORE else None


class _Program(click.Group):
    """Imports a command only when it runs: most need modules that the others do not."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Insert `scan` if no command is named; completion calls this, too."""
        named = not args or args[0] in (*commands.SUMMARIES, "-h", "--help", "--version")
        return super().parse_args(context, args if named else [_USUAL, *args])

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of the first word: a command, or an option of `scan`."""
        found = super().shell_complete(context, incomplete)
        usual = self.get_command(context, _USUAL) if incomplete.startswith("-") else None
        known = {item.value for item in found}
        more = usual.shell_complete(click.Context(usual), incomplete) if usual else []
        return found + [item for item in more if item.value not in known]

    def list_commands(self, _: click.Context) -> list[str]:
        return list(commands.SUMMARIES)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in commands.SUMMARIES:
            return None
        return cast(click.Command, import_module(f"reachscan.cli.commands.{name}").command)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave out --help and --version, which need no description here."""
        self.format_commands(context, formatter)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(commands.SUMMARIES.items()))


@click.group(
    cls=_Program,
    help=_HELP,
    epilog=_EPILOG,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Show the version.")
def program() -> None:
    """The group of commands; `_HELP` is its help text."""
