"""The command line. The only file that prints, colours, or picks an exit status."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from reachscan import __version__, errors, model
from reachscan.errors import ExitStatus
from reachscan.reports import Selection, json_file, logfmt, text
from reachscan.saving import OutputFile
from reachscan.scan import Options, ScanResult, load, scan

FORMATS = ("text", "json", "logfmt")
MAX_CONTENTS = 4096
_DEFAULT_LIMIT = 20
_DEFAULT_CONTENTS = {"text": 32, "json": 32, "logfmt": 0}
_COLOURS: dict[str, dict[str, Any]] = {
    "headline": {"bold": True},
    "good": {"fg": "green", "bold": True},
    "dim": {"dim": True},
    "warning": {"fg": "yellow"},
    "error": {"fg": "red", "bold": True},
}

_HELP = """Find heap memory of a running process that nothing points to any more.

\b
  reachscan 4711                     what does process 4711 leak?
  reachscan nginx --json -o out.json   by name; one JSON document
  reachscan 4711 --save day1.rsc     keep everything, to report on it later
  reachscan report day1.rsc --all    every leaked block of that scan

The process is paused for a moment and runs on unharmed. All options:
reachscan scan --help"""

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
        _talk("interrupted: no report")
        status = ExitStatus.INTERRUPTED
    except errors.ReachscanError as error:
        status = _show_error(error, verbose)
    except Exception as error:
        status = _show_bug(f"{type(error).__name__}: {error}", verbose)
    sys.exit(status or ExitStatus.CLEAN)


def _with_command(words: list[str]) -> list[str]:
    if not words or words[0] in (*program.commands, "-h", "--help", "--version"):
        return words
    return ["scan", *words]


@click.group(
    help=_HELP,
    epilog=_EPILOG,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s", help="Show the version.")
def program() -> None:
    """Hold the commands; the help text is `_HELP`."""


def _report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a report looks like."""
    for option in reversed(
        (
            click.option(
                "--format",
                "format_",
                type=click.Choice(FORMATS),
                help="text for people (default), json for programs, logfmt for logs.",
            ),
            click.option("--json", "json_", is_flag=True, help="Same as --format json."),
            click.option(
                "-o",
                "--output",
                type=click.Path(path_type=Path),
                help="Write the report to this file.",
            ),
            click.option(
                "--limit",
                type=click.IntRange(min=0),
                help="Kinds of leaks listed (default 20); totals always cover all.",
            ),
            click.option("--all", "every_block", is_flag=True, help="List every leaked block too."),
            click.option(
                "--contents",
                type=click.IntRange(0, MAX_CONTENTS),
                help="First bytes of a block that are shown "
                "(default 32, in logfmt 0); 0 keeps user data out.",
            ),
        )
    ):
        command = option(command)
    return command


_verbose = click.option("-v", "--verbose", is_flag=True, help="Tell what each step does and costs.")


@program.command("scan", short_help="Scan a running process (the default).")
@click.argument("process", metavar="PID|NAME")
@_report_options
@click.option(
    "--method",
    type=click.Choice(("auto", "clone", "copy")),
    default="auto",
    help="How memory is captured; auto tries clone, then copy.",
)
@click.option("--threads", type=click.IntRange(1, 256), help="Threads that search the heap.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Give up after this long, and let the process go.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE.rsc",
    help="Keep the raw scan, for `reachscan report`.",
)
@_verbose
def scan_command(
    process: str,
    method: str,
    threads: int | None,
    timeout: float | None,
    save: Path | None,
    verbose: bool,
    **report: Any,
) -> ExitStatus:
    """Find the leaks of a running process, given by its id or its name if that is unique."""
    output = _Output(**report)
    _refuse_clash(save, output.path)
    options = Options(method, threads, timeout, output.selection.contents, verbose, save)
    progress = _Progress(verbose)
    try:
        result = scan(process, options, progress)
    finally:
        progress.clear()
    if verbose:
        _talk_about(result)
    output.write(result)
    if result.save_error:
        raise result.save_error
    return ExitStatus.LEAKS if result.recording.totals.leaked else ExitStatus.CLEAN


@program.command("report", short_help="Report on a scan that was kept with --save.")
@click.argument("file", type=click.Path(path_type=Path))
@_report_options
@_verbose
def report_command(file: Path, verbose: bool, **report: Any) -> ExitStatus:
    """Make a report from a scan that was kept with --save, here or on another machine."""
    output = _Output(**report)
    _refuse_clash(file, output.path)
    result = load(file)
    if verbose:
        _talk_about(result)
    output.write(result)
    return ExitStatus.LEAKS if result.recording.totals.leaked else ExitStatus.CLEAN


def _refuse_clash(stream: Path | None, report: Path | None) -> None:
    if stream and report and stream.resolve() == report.resolve() and not stream.is_char_device():
        raise click.UsageError(f"{stream} cannot hold both the raw scan and the report")


class _Output:
    """Where the report goes and what it looks like."""

    def __init__(
        self,
        format_: str | None,
        json_: bool,
        output: Path | None,
        limit: int | None,
        every_block: bool,
        contents: int | None,
    ) -> None:
        if json_ and format_ not in (None, "json"):
            raise click.UsageError(f"--json and --format {format_} contradict each other")
        self._format = "json" if json_ else format_ or "text"
        self.path = output
        if output and output.is_dir():
            raise click.UsageError(f"{output} is a directory; name a file in it")
        if output and not output.parent.is_dir():
            raise click.UsageError(f"there is no directory {output.parent}")
        everything = sys.maxsize if every_block else _DEFAULT_LIMIT
        self.selection = Selection(
            limit=everything if limit is None else limit,
            contents=_DEFAULT_CONTENTS[self._format] if contents is None else contents,
            every_block=every_block,
        )

    def write(self, result: ScanResult) -> None:
        """Write the report to its file or to stdout."""
        if self.path:
            file = OutputFile(self.path)
            try:
                for line in self._lines(result, colour=False):
                    file.write(f"{line}\n".encode())
                file.commit()
            finally:
                file.discard()
        else:
            _print(self._lines(result, colour=_is_colourful(sys.stdout)))

    def _lines(self, result: ScanResult, *, colour: bool) -> Iterator[str]:
        if self._format == "json":
            return json_file.lines(result, self.selection)
        if self._format == "logfmt":
            return logfmt.lines(result, self.selection)
        return text.lines(result, self.selection, _coloured if colour else text.plain)


def _print(lines: Iterator[str]) -> None:
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read this has seen enough (`| head`). Python flushes once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise errors.OutputError(f"cannot write the report: {error.strerror}", "") from error


def _coloured(line: str, what: str) -> str:
    return click.style(line, **_COLOURS[what])


def _is_colourful(stream: Any) -> bool:
    return bool(stream.isatty() and not os.environ.get("NO_COLOR"))


class _Progress:
    """One line on stderr that says how far the scan is, if anybody is there to see it."""

    def __init__(self, verbose: bool) -> None:
        # The helper talks on the same terminal when it is asked to.
        self._shown = sys.stderr.isatty() and not verbose
        self._line = ""

    def __call__(self, progress: model.Progress) -> None:
        if not self._shown:
            return
        line = f"{progress.phase} ..."
        if progress.total:
            percent = 100 * min(progress.done, progress.total) // progress.total
            line = f"{progress.phase}: {text.size(progress.done)} of {text.size(progress.total)}"
            line += f", {percent} %"
        if line != self._line:
            self._line = line
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Leave the terminal as it was."""
        if self._line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _talk_about(result: ScanResult) -> None:
    snapshot = result.recording.snapshot
    _talk(f"method {snapshot.method}{f' ({snapshot.reason})' if snapshot.reason else ''}")
    for phase, ns in snapshot.phases:
        _talk(f"  {phase:<10} {ns / 1e6:10.2f} ms")


def _talk(message: str) -> None:
    click.echo(f"reachscan: {text.printable(message)}", err=True)


def _show_error(error: errors.ReachscanError, verbose: bool) -> ExitStatus:
    if error.exit_status == ExitStatus.BUG:
        return _show_bug(error.sentence, verbose)
    advice = f"; {error.next_step}" if error.next_step else ""
    prefix = _coloured("reachscan:", "error") if _is_colourful(sys.stderr) else "reachscan:"
    click.echo(f"{prefix} {text.printable(error.sentence + advice)}", err=True)
    return error.exit_status


def _show_bug(sentence: str, verbose: bool) -> ExitStatus:
    if verbose:
        traceback.print_exc()
    _talk(
        f"this is a bug in reachscan {__version__}: {sentence}; "
        "please report this line, with what -v adds to it"
    )
    return ExitStatus.BUG
