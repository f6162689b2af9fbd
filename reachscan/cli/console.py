"""All output: reports go to stdout or into a file, messages go to stderr."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from reachscan import errors, reports
from reachscan.reports import Selection, Style, plain

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeAlias

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
_MIN_WIDTH = 80
"""Minimum width: narrower tables would have no room for text."""


Part: TypeAlias = "str | bytes"
"""Part of a report: a line of text without its end, or raw bytes."""

Report: TypeAlias = "Callable[[Style], Iterator[Part]]"
"""Creates a report for a style: colours and width."""


class Output(NamedTuple):
    """Where a report goes (stdout if `path` is None) and what it looks like.

    Attributes:
        format: a name in `reports.FORMATS`.
        path: a file for it alone.
        selection: how much it shows.
        beside: a file to append it to.
    """

    format: str = "text"
    path: Path | None = None
    selection: Selection = Selection()
    beside: Beside | None = None

    def report(self, result: ScanResult) -> None:
        """Write the report on a scan.

        Raises:
            OutputError: it cannot be written; no partial file is left.
        """
        self.write(lambda style: self.parts(result, style), private=self.selection.contents > 0)

    def parts(self, result: ScanResult, style: Style) -> Iterator[Part]:
        """Return the report on a scan piece by piece.

        Raises:
            UnknownFormatError: the format does not exist for this question.
        """
        return reports.lines(result.subject, self.format, result, self.selection, style)

    def write(self, report: Report, *, private: bool = False) -> None:
        """Write a report.

        Args:
            report: what to write.
            private: it contains memory of the target; other users must not read the file.

        Raises:
            OutputError: it cannot be written; no partial file is left.
        """
        if self.path:
            _write_file(self.path, report(_style()), private)
        elif self.beside:
            _append(self.beside, report(_style(sys.stdout)))
        else:
            show(report)


def _write_file(path: Path, parts: Iterator[Part], private: bool) -> None:
    from reachscan.recording.save import PRIVATE, OutputFile

    file = OutputFile(path, PRIVATE if private else None)
    try:
        for part in parts:
            file.write(_bytes(part))
        file.commit()
    finally:
        file.discard()


def _append(beside: Beside, parts: Iterator[Part]) -> None:
    before = os.fstat(beside.descriptor).st_size
    try:
        with open(beside.descriptor, "ab", closefd=False) as file:
            for part in parts:
                file.write(_bytes(part))
    except OSError as error:
        os.ftruncate(beside.descriptor, before)
        raise errors.OutputError(
            f"cannot write the report to {beside.file}: {error.strerror}",
            "make room there; the reports before it are whole",
        ) from error


def _bytes(part: Part) -> bytes:
    return part if isinstance(part, bytes) else f"{part}\n".encode()


def is_for_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def show(report: Report) -> bool:
    """Print a report to stdout; return whether its reader is still there.

    Raises:
        OutputError: the disk behind it is full or failing.
    """
    if sys.stdout is None:  # closed before we were started
        return False
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names and the lines of trees may have characters that a non-UTF-8 terminal lacks.
        sys.stdout.reconfigure(errors="replace")
    try:
        for part in report(_style(sys.stdout)):
            if isinstance(part, bytes):
                sys.stdout.flush()  # the text layer has a buffer of its own
                sys.stdout.buffer.write(part)
            else:
                sys.stdout.write(f"{part}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        forget(sys.stdout)  # the reader has exited (`| head`)
        return False
    except OSError as error:
        forget(sys.stdout)
        raise errors.OutputError(
            f"cannot write the report: {error.strerror}",
            "make room there, or send it to another place",
        ) from error
    return True


def forget(stream: IO[str] | None) -> None:
    """Drop what a stream could not write: Python would try again at exit, and fail."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _style(stream: Any = None) -> Style:
    """Return the style of reports in a stream, or in a file; the width is that of its terminal."""
    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isascii() and asked.isdigit() else 0
    if not width and stream is not None and stream.isatty():
        try:
            width = os.get_terminal_size(stream.fileno()).columns
        except OSError:  # not a real terminal
            width = _TERMINAL_WIDTH
    paint = _coloured if _is_colourful(stream) else plain.paint
    return Style(paint, max(_MIN_WIDTH, width) if width else plain.width)


def _coloured(line: str, what: str) -> str:
    import click  # only coloured output needs it

    return click.style(line, **_COLOURS[what])


def _is_colourful(stream: Any) -> bool:
    return _obeys(stream) and not os.environ.get("NO_COLOR")


def _obeys(stream: Any) -> bool:
    """Return whether a stream is a terminal with escape sequences; it is None if closed."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


class Beside(NamedTuple):
    """Where the reports on a command go, one after the other.

    Attributes:
        descriptor: what they are written to.
        file: a file of its own, whose former contents they replace.
    """

    descriptor: int
    file: Path | None = None


def open_beside(output: Output, *, shares_stdout: bool) -> Beside | None:
    """Open where the reports on a command go: the file, or stderr; None if that is stdout.

    Args:
        output: the format, and the file.
        shares_stdout: write to stdout; otherwise only the command writes to it.

    Raises:
        OutputError: the file cannot be opened for writing.
    """
    if output.path:
        try:
            return _open_file_beside(output.path, private=output.selection.contents > 0)
        except OSError as error:
            raise errors.OutputError(f"cannot write {output.path}: {error.strerror}") from error
    if shares_stdout:
        return None
    return Beside(os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else 2)


def _open_file_beside(path: Path, *, private: bool) -> Beside:
    from reachscan.recording import descriptors
    from reachscan.recording.save import PRIVATE

    held = descriptors.link(path)
    if held:
        return Beside(descriptors.duplicate(held))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE if private else 0o666)
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    if is_file and private:
        os.fchmod(descriptor, PRIVATE)
    return Beside(descriptor, path if is_file else None)


def beside_command(output: Output, beside: Beside | None) -> Output:
    """Return where the reports on a command go that has been started; `open_beside` opened it."""
    if beside is None:
        return output
    if beside.file:
        os.ftruncate(beside.descriptor, 0)
    if sys.stdout is not None:
        # Give stdout up, so a reader of the command's output sees its end when the command exits.
        # If it was closed before we started, its number may mean another file by now.
        os.dup2(beside.descriptor, sys.stdout.fileno(), inheritable=False)
    # It stays open until the exit.
    sys.stdout = open(beside.descriptor, "w", closefd=False)  # noqa: SIM115
    return output._replace(path=None, beside=beside if beside.file else None)


@contextmanager
def progress(verbose: bool) -> Iterator[Callable[[model.Progress], None]]:
    """Show the progress of a scan as one line on stderr, if that is a terminal.

    Args:
        verbose: the helper writes to the same terminal, so show nothing.
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
        """Clear the line."""
        if self._line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def occupy_closed_streams() -> None:
    """Give the numbers of stdin, stdout and stderr to nothing else if they were closed before.

    A file that is opened by us would get such a number, and a child take it for that stream. No
    child inherits what is opened here: for it the streams are as closed as they are for us.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def print_steps(result: ScanResult) -> None:
    """Print the duration of each step of a scan."""
    snapshot = result.recording.snapshot
    talk(f"method {snapshot.method}{f' ({snapshot.reason})' if snapshot.reason else ''}")
    for phase, ns in snapshot.phases:
        talk(f"  {phase:<10} {ns / 1e6:10.2f} ms")


def tell(message: str, facts: dict[str, Any] | None = None) -> None:
    """Print what was done to stdout: as text, or as JSON if `facts` are given."""
    import json

    from reachscan.wording import printable

    line = json.dumps(facts) if facts else printable(message)
    show(lambda _: iter([line]))


def talk(message: str) -> None:
    """Print a message to stderr."""
    _say("reachscan:", message)


def end_line() -> None:
    """Start a new line on stderr."""
    _put("")


def report_error(error: errors.ReachscanError) -> None:
    """Print what went wrong and what to do about it."""
    advice = f"; {error.next_step}" if error.next_step else ""
    prefix = _coloured("reachscan:", "error") if _is_colourful(sys.stderr) else "reachscan:"
    _say(prefix, error.sentence + advice)
    for line in error.details:
        _say("", line)


def _say(prefix: str, message: str) -> None:
    from reachscan.wording import printable

    _put(f"{prefix} {printable(message)}")


def _put(line: str) -> None:
    on_stderr(lambda: print(line, file=sys.stderr, flush=True))


def on_stderr(write: Callable[[], None]) -> None:
    """Call what writes to stderr. If that is closed or its disk full, only the status can tell."""
    if sys.stderr is None:
        return
    try:
        write()
    except OSError:
        forget(sys.stderr)
