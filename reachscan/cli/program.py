"""What words after `reachscan` mean: its commands and their options."""

from __future__ import annotations

from importlib import import_module
from typing import cast

import click

from reachscan import __version__
from reachscan.cli import commands

_HELP = """Find heap memory of a running process that nothing points to any more.

\b
  reachscan 4711                       what does process 4711 leak?
  reachscan redis-server --json        by name; one JSON document
  reachscan nginx --all-processes      each process of that name
  reachscan 4711 --save day1.rsc       keep everything, to report on it later
  reachscan report day1.rsc --all      every leaked block of that scan

The process is paused for a moment and runs on unharmed. All options of a
command: reachscan scan --help"""

_EPILOG = (
    "Exit status: 0 no leaks or only possible ones, 1 leaks, 2 bad usage, 3 scan failed, 70 bug."
)


def run(words: list[str]) -> int | None:
    """Run what the words ask for, and return an exit status.

    Raises:
        KeyboardInterrupt: it was interrupted.
        ReachscanError: it could not be done.
    """
    named = not words or words[0] in (*commands.SUMMARIES, "-h", "--help", "--version")
    given = words if named else ["scan", *words]
    try:
        status: int | None = program.main(given, "reachscan", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    return status


class _Program(click.Group):
    """Imports a command only when it is run: most of them need much that the others do not."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(commands.SUMMARIES)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in commands.SUMMARIES:
            return None
        return cast(click.Command, import_module(f"reachscan.cli.commands.{name}").command)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Leave out --help and --version, which nobody has to be told of here."""
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
    """Hold the commands; the help text is `_HELP`."""
