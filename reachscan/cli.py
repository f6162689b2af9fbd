"""The command line: finds the command that is meant, and turns every end into an exit status."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn, cast

import click

from reachscan import __version__, commands, console, errors
from reachscan.errors import ExitStatus

_HELP = """Find heap memory of a running process that nothing points to any more.

\b
  reachscan 4711                       what does process 4711 leak?
  reachscan nginx --json -o out.json   by name; one JSON document
  reachscan 4711 --save day1.rsc       keep everything, to report on it later
  reachscan report day1.rsc --all      every leaked block of that scan

The process is paused for a moment and runs on unharmed. All options of a
command: reachscan scan --help"""

_EPILOG = "Exit status: 0 no leaks, 1 leaks, 2 bad usage, 3 scan failed, 70 bug."


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; every failure becomes one line.

    Args:
        arguments: words after the program's name; None for those it was started with.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbose = bool({"-v", "--verbose"} & set(words))
    # `timeout 10 reachscan ...` must clean up just like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = program.main(_with_command(words), "reachscan", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except click.Abort:
        console.talk("interrupted: no report")
        status = ExitStatus.INTERRUPTED
    except errors.ReachscanError as error:
        status = _show_error(error, verbose)
    except Exception as error:
        status = _show_bug(f"{type(error).__name__}: {error}", verbose)
    sys.exit(status or ExitStatus.CLEAN)


def _with_command(words: list[str]) -> list[str]:
    if not words or words[0] in (*commands.SUMMARIES, "-h", "--help", "--version"):
        return words
    return ["scan", *words]


class _Program(click.Group):
    """Imports a command only when it is run: most of them need much that the others do not."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(commands.SUMMARIES)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in commands.SUMMARIES:
            return None
        return cast(click.Command, import_module(f"reachscan.commands.{name}").command)

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


def _show_error(error: errors.ReachscanError, verbose: bool) -> ExitStatus:
    if error.exit_status == ExitStatus.BUG:
        return _show_bug(error.sentence, verbose)
    console.talk_of_error(error)
    return error.exit_status


def _show_bug(sentence: str, verbose: bool) -> ExitStatus:
    if verbose:
        traceback.print_exc()
    console.talk(
        f"this is a bug in reachscan {__version__}: {sentence}; "
        "please report this line, with what -v adds to it"
    )
    return ExitStatus.BUG
