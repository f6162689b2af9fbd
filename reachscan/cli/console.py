"""Everything that is printed: reports go to stdout or into a file, talk goes to stderr."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from reachscan import errors, reports
from reachscan.reports import Selection, Style, plain

if TYPE_CHECKING:
    from pathlib import Path

    from reachscan.recording import model
    from reachscan.result import ScanResult

_COLOURS: dict[str, dict[str, Any]] = {
    "headline": {"bold": True},
    "good": {"fg": "green", "bold": True},
    "plain": {},
    "dim": {"dim": True},
    "warning": {"fg": "yellow"},
    "error": {"fg": "red", "bold": True},
}


_TERMINAL_WIDTH = 80
_LEAST_WIDTH = 80
"""Narrower tables would be all columns and no text."""


Part: TypeAlias = "str | bytes"
"""Of a report: a line of text without its end, or bytes that are written as they are."""

Report: TypeAlias = "Callable[[Style], Iterator[Part]]"
"""Makes a report; is told how text is coloured, and how wide it is."""


class Output(NamedTuple):
    """Where a report goes (`path` None is stdout) and what it looks like."""

    format: str = "text"
    path: Path | None = None
    selection: Selection = Selection()

    def report(self, result: ScanResult) -> None:
        """Write the report on a scan.

        Raises:
            OutputError: it cannot be written; no half of it is left in a file.
        """
        self.write(lambda style: self.parts(result, style), private=self.selection.contents > 0)

    def parts(self, result: ScanResult, style: Style) -> Iterator[Part]:
        """Return the report on a scan piece by piece.

        Raises:
            UnknownFormatError: what was asked has no such format.
        """
        return reports.lines(result.subject, self.format, result, self.selection, style)

    def write(self, report: Report, *, private: bool = False) -> None:
        """Write a report.

        Args:
            report: what to write.
            private: it holds memory of the target; others must not read the file.

        Raises:
            OutputError: it cannot be written; no half of it is left in a file.
        """
        if self.path:
            _write_file(self.path, report(plain), private)
        else:
            show(report)


def _write_file(path: Path, parts: Iterator[Part], private: bool) -> None:
    from reachscan.recording.save import PRIVATE, OutputFile

    file = OutputFile(path, PRIVATE if private else None)
    try:
        for part in parts:
            file.write(part if isinstance(part, bytes) else f"{part}\n".encode())
        file.commit()
    finally:
        file.discard()


def is_for_terminal() -> bool:
    """Tell whether what goes to stdout is shown by a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def show(report: Report) -> bool:
    """Print a report to stdout; tells whether anybody reads them.

    Raises:
        OutputError: the disk behind it is full or failing.
    """
    if sys.stdout is None:  # it was closed before we were started
        return False
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may hold, and trees are drawn with, what a terminal that is not UTF-8 lacks.
        sys.stdout.reconfigure(errors="replace")
    try:
        for part in report(_style(sys.stdout)):
            if isinstance(part, bytes):
                sys.stdout.flush()  # what is text has a buffer of its own
                sys.stdout.buffer.write(part)
            else:
                sys.stdout.write(f"{part}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()  # whoever read this has seen enough (`| head`)
        return False
    except OSError as error:
        forget_stdout()
        raise errors.OutputError(f"cannot write the report: {error.strerror}", "") from error
    return True


def forget_stdout() -> None:
    """Drop what could not be written: Python tries again as it exits, and fails for that."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _style(stream: Any) -> Style:
    """Return what a report looks like in a stream: as wide as the terminal that it goes to."""
    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isascii() and asked.isdigit() else 0
    if not width and stream.isatty():
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except OSError:  # a terminal in name only
            width = _TERMINAL_WIDTH
    paint = _coloured if _is_colourful(stream) else plain.paint
    return Style(paint, max(_LEAST_WIDTH, width) if width else plain.width)


def _coloured(line: str, what: str) -> str:
    import click  # only those who see colours wait for it

    return click.style(line, **_COLOURS[what])


def _is_colourful(stream: Any) -> bool:
    return _obeys(stream) and not os.environ.get("NO_COLOR")


def _obeys(stream: Any) -> bool:
    """Tell whether a stream, None if it is closed, is a terminal that knows escape sequences."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def beside_command(output: Output, *, shares_stdout: bool) -> Output:
    """Return where reports go beside a command: to stderr, or into the file, or to stdout.

    They go there one behind the other.

    Args:
        output: what they look like, and the file.
        shares_stdout: stdout was asked for; else the command has it to itself.

    Raises:
        OutputError: the file cannot be written.
    """
    if shares_stdout and not output.path:
        return output
    place = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else 2
    if output.path:
        private = output.selection.contents > 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        try:
            place = os.open(output.path, flags, 0o600 if private else 0o666)
        except OSError as error:
            raise errors.OutputError(f"cannot write {output.path}: {error.strerror}") from error
    if sys.stdout is not None:
        # Whoever reads what the command writes sees the end of it with the end of the command.
        # If it was closed before we were started, the number may stand for another file by now.
        os.dup2(place, sys.stdout.fileno(), inheritable=False)
    sys.stdout = open(place, "w", closefd=False)  # noqa: SIM115  # for as long as we live
    return output._replace(path=None)


@contextmanager
def progress(verbose: bool) -> Iterator[Callable[[model.Progress], None]]:
    """Show how far a scan is, as one line on stderr, if anybody is there to see it.

    Args:
        verbose: the helper talks on the same terminal, so that the line would be in its way.
    """
    line = _ProgressLine()
    try:
        yield line.update if _obeys(sys.stderr) and not verbose else _ignore
    finally:
        line.clear()


def _ignore(_: model.Progress) -> None:
    pass


class _ProgressLine:
    def __init__(self) -> None:
        self._line = ""

    def update(self, progress: model.Progress) -> None:
        from reachscan.wording import size

        line = f"{progress.phase} ..."
        if progress.done and not progress.total:
            line = f"{progress.phase}: {size(progress.done)} ..."
        if progress.total:
            percent = 100 * min(progress.done, progress.total) // progress.total
            line = f"{progress.phase}: {size(progress.done)} of {size(progress.total)}"
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


def talk_about(result: ScanResult) -> None:
    """Tell what each step of a scan cost."""
    snapshot = result.recording.snapshot
    talk(f"method {snapshot.method}{f' ({snapshot.reason})' if snapshot.reason else ''}")
    for phase, ns in snapshot.phases:
        talk(f"  {phase:<10} {ns / 1e6:10.2f} ms")


def tell(message: str, facts: dict[str, Any] | None = None) -> None:
    """Say what was done, on stdout: to people, or as JSON if there are facts."""
    import json

    from reachscan.wording import printable

    line = json.dumps(facts) if facts else printable(message)
    show(lambda _: iter([line]))


def talk(message: str) -> None:
    """Say something to people, on stderr."""
    _say("reachscan:", message)


def end_line() -> None:
    """Begin a new line on stderr."""
    if sys.stderr:  # it may be closed
        print(file=sys.stderr, flush=True)


def talk_of_error(error: errors.ReachscanError) -> None:
    """Say what went wrong and what to do about it."""
    advice = f"; {error.next_step}" if error.next_step else ""
    prefix = _coloured("reachscan:", "error") if _is_colourful(sys.stderr) else "reachscan:"
    _say(prefix, error.sentence + advice)
    for line in error.details:
        _say("", line)


def _say(prefix: str, message: str) -> None:
    from reachscan.wording import printable

    if sys.stderr:  # it may be closed
        print(prefix, printable(message), file=sys.stderr, flush=True)
