"""What is printed, and where: terminals, pipes, and streams that are closed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import streams
from command_lines import CALL_MAIN, LEAKY, Install
from streams import CODE, Leak, Stream

from reachscan.cli import console
from reachscan.recording import model
from reachscan.reports import DEFAULT_WIDTH


def test_a_reader_that_has_seen_enough(saved: Path) -> None:
    saved.write_bytes(Stream(leaks=[Leak(8) for _ in range(50_000)]).encoded())
    command = [sys.executable, "-m", "reachscan", "report", str(saved), "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_reader_of_the_help_that_has_seen_enough() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "reachscan", "--help"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, b"")


def test_colour_only_for_terminals_that_want_it(saved: Path) -> None:
    script = "import sys; sys.stdout.isatty = lambda: True; " + CALL_MAIN
    command = [sys.executable, "-c", script, "report", str(saved)]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment["TERM"] = "xterm"
    for extra, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        done = subprocess.run(
            command, capture_output=True, env={**environment, **extra}, check=False
        )
        assert (b"\x1b[" in done.stdout) == coloured


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_text_is_as_wide_as_the_terminal(variables: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.rsc"
    leaks = [Leak(4096, [CODE + 8, 1], [40]) for _ in range(3)]
    warning = ("code", "words " * 40)
    stream = Stream(leaks=leaks, warnings=[warning], contents={n: bytes(4096) for n in range(6)})
    path.write_bytes(stream.encoded())
    command = [sys.executable, "-m", "reachscan", "report", str(path), "--contents", "4096"]
    for columns in (80, 97):
        rows = [
            re.sub(r"\x1b\[[0-9;]*m", "", row) for row in in_terminal(command, columns, variables)
        ]
        assert max(map(len, rows)) in range(columns - 10, columns + 1)
        assert "0ff0  00 00" in "".join(rows)


def in_terminal(command: list[str], columns: int, variables: dict[str, str]) -> list[str]:
    """Return the lines that a command prints to a terminal so wide."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "TERM")}
    with subprocess.Popen(command, stdout=theirs, env=environment | variables):
        os.close(theirs)
        printed = bytearray()
        with contextlib.suppress(OSError):  # nobody holds the other end any more
            while some := os.read(ours, 65536):
                printed += some
    os.close(ours)
    return printed.decode().splitlines()


def test_columns_tells_how_wide_text_is(saved: Path) -> None:
    saved.write_bytes(Stream(leaks=[Leak(8)], warnings=[("code", "words " * 80)]).encoded())
    command = [sys.executable, "-m", "reachscan", "report", str(saved)]
    for columns in ("80", "150", "nonsense", "0"):
        environment = {**os.environ, "COLUMNS": columns}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        wanted = {"80": 80, "150": 150}.get(columns, DEFAULT_WIDTH)
        made = saved.with_suffix(".txt")
        subprocess.run([*command, "-o", made], env=environment, check=False)
        for text in (done.stdout, made.read_text()):
            assert max(map(len, text.splitlines())) in range(wanted - 10, wanted + 1)


def test_a_dumb_terminal_has_no_colour(saved: Path) -> None:
    command = [sys.executable, "-m", "reachscan", "report", str(saved)]
    coloured = in_terminal(command, 80, {"TERM": "xterm"})
    plain = in_terminal(command, 80, {"TERM": "dumb"})
    assert any("\x1b" in row for row in coloured)
    assert not any("\x1b" in row for row in plain)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_bug(saved: Path, closed: str) -> None:
    script = f'exec "$@" {closed}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "reachscan", "report", str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr == ""
    assert ("2 leaked blocks" in done.stdout) == (closed == "2>&-")
    profile = subprocess.run([*command, "--format", "pprof"], capture_output=True, check=False)
    assert profile.returncode == 1
    bad = subprocess.run([*command[:-1], "/no/such"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and bad.stdout == ""
    saved.write_bytes(streams.failure("target-exited", "it is gone"))
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 3 and failed.stdout == ""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["heap", "--help"], ["report"]])
def test_a_full_disk_is_no_bug(saved: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "reachscan", *words, *[str(saved)][: words == ["report"]]]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "No space left on device; make room there, or " in done.stderr


@pytest.mark.parametrize(("words", "status"), [(("report", "/"), 2), (("detach", "0"), 3)])
def test_a_full_stderr_changes_no_status(words: tuple[str, ...], status: int) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-m", "reachscan", *words], stderr=full, check=False)
    assert done.returncode == status


def test_a_scan_with_all_streams_closed(target: int, fake_helper: Install) -> None:
    fake_helper(LEAKY.encoded())
    script = 'exec "$@" <&- >&- 2>&-'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "reachscan", str(target)]
    assert subprocess.run(command, check=False).returncode == 1


def test_progress_is_shown_only_where_a_line_can_be_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With -v, the helper's lines would run into it.
    for terminal, verbose, shown in (
        ("xterm", False, True),
        ("xterm", True, False),
        ("dumb", False, False),
    ):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", terminal)
        with console.progress(verbose) as progress:
            progress(model.Progress("mark", 1, 2))
        assert ("mark" in stream.getvalue()) == ("\x1b" in stream.getvalue()) == shown


def test_a_page_is_not_printed_to_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.rsc"
    path.write_bytes(Stream().encoded())
    script = "import sys; sys.stdout.isatty = lambda: True; " + CALL_MAIN
    command = [sys.executable, "-c", script, "report", str(path), "--format", "html"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and not done.stdout
    assert "add -o page.html" in done.stderr
    written = subprocess.run(
        [*command, "-o", str(tmp_path / "page.html")], capture_output=True, text=True, check=False
    )
    assert written.returncode == 0 and not written.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_any_encoding_of_the_terminal_will_do(tmp_path: Path) -> None:
    path = tmp_path / "a.rsc"
    path.write_bytes(
        Stream(leaks=[Leak(24, [1], [8])], name="\N{GREEK SMALL LETTER OMEGA}").encoded()
    )
    command = [sys.executable, "-m", "reachscan", "report", str(path)]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 1 and not done.stderr
    assert done.stdout.startswith(b"? (pid 4711)") and b"? block" in done.stdout
