"""The command line: statuses, one-line errors, and files that are whole or absent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import streams
from streams import CODE, Leak, Stream

from reachscan.capture import helper
from reachscan.cli import commands, main
from reachscan.recording import wire
from reachscan.reports import USUAL_WIDTH

LEAKY = Stream(leaks=[Leak(24, [CODE + 8], [100])])


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    talk: str


Runner = Callable[..., Run]
Install = Callable[..., None]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    def run(*words: object) -> Run:
        with pytest.raises(SystemExit) as exit_:
            main.main([str(word) for word in words])
        captured = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return Run(int(exit_.value.code), captured.out, captured.err)

    return run


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.rsc"
    path.write_bytes(LEAKY.encoded())
    return path


@pytest.fixture
def target() -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def fake_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make the helper a shell script that sends a stream and then does something."""

    def install(stream: bytes, then: str = "") -> None:
        sent = tmp_path / "sent"
        sent.write_bytes(stream)
        script = tmp_path / "helper"
        script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat {sent}\n{then}\n')
        script.chmod(0o755)
        monkeypatch.setenv(helper.OVERRIDE, str(script))

    return install


def assert_refused(done: Run, *words: str, status: int = 3) -> None:
    assert done.status == status, done.talk
    assert done.out == ""
    assert done.talk.count("\n") == 1, done.talk
    assert all(word in done.talk for word in words), done.talk


def test_help_fits_one_screen(run: Runner) -> None:
    done = run("--help")
    assert done.status == 0
    assert len(done.out.splitlines()) <= 30
    assert max(map(len, done.out.splitlines())) <= 80
    assert "reachscan report day1.rsc" in done.out


CALL_MAIN = "from reachscan.cli.main import main; main()"
HEAVY = {
    "numpy",
    "elftools",
    "demangle",
    "psutil",
    "reachscan.grouping.folding",
    "reachscan.grouping.struct_candidates",
}
"""What takes longer to load than a small process takes to be scanned."""
FOR_OPTIONS = {"click"}
"""What is not needed where there are no options."""


def loaded(*words: object) -> set[str]:
    """Return the modules that are loaded when a command has done its work."""
    script = """if True:
        import sys
        from reachscan.cli.main import main
        try:
            main()
        finally:
            print(*sys.modules, file=sys.stderr)
    """
    command = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    return set(done.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    assert not loaded("--help") & HEAVY


def test_a_scan_without_leaks_loads_nothing_heavy(target: int, fake_helper: Install) -> None:
    fake_helper(Stream().encoded())
    assert not loaded(target) & (HEAVY | FOR_OPTIONS)
    assert not loaded("scan", target, "--contents", 0) & HEAVY


def test_a_process_id_alone_means_what_it_does_with_options(
    run: Runner, target: int, fake_helper: Install, tmp_path: Path
) -> None:
    fake_helper(LEAKY.encoded())
    alone = run(target)
    arguments = (tmp_path / "arguments").read_text()
    assert alone.status == 1
    spelled_out = run("scan", target)
    assert (tmp_path / "arguments").read_text() == arguments
    took = re.compile(r"scanned in \S+ \S+")
    assert took.sub("", spelled_out.out) == took.sub("", alone.out)


@pytest.mark.parametrize("name", commands.SUMMARIES)
def test_every_command_is_there_and_explains_itself(run: Runner, name: str) -> None:
    done = run(name, "--help")
    assert done.status == 0
    assert f"Usage: reachscan {name} " in done.out


def test_version(run: Runner) -> None:
    assert run("--version").out.startswith("reachscan 0.")


@pytest.mark.parametrize(
    "words",
    [
        ("1", "--contents", "4097"),
        ("1", "--contents", "-1"),
        ("1", "--limit", "-1"),
        ("1", "--limit", "many"),
        ("1", "--method", "magic"),
        ("1", "--threads", "0"),
        ("1", "--timeout", "0"),
        ("1", "--confirm", "0"),
        ("1", "--confirm-every", "-1"),
        ("1", "--format", "xml"),
        ("1", "--json", "--format", "text"),
        ("1", "2"),
        ("scan",),
        ("report",),
        ("1", "-o", "/"),
        ("1", "-o", "/no/such/directory/file"),
        ("1", "-o", "/dev/null/file"),
        ("1", "--save", "/"),
        ("1", "--save", "/no/such/directory/file"),
        ("1", "--save", "-"),
        ("1", "--baseline", "/no/such/file"),
        ("1", "--baseline", "/"),
        ("1", "--suppressions", "/no/such/file"),
        ("1", "--suppressions", "/"),
        ("heap", "1", "--save", "/no/such/directory/file"),
        ("explain", "1", "4096", "-o", "/no/such/directory/file"),
        ("report", "/no/such/file"),
        ("report", "/"),
        ("diff", "/no/such/file", "/no/such/file"),
        ("1", "-o", "/tmp/same", "--save", "/tmp/same"),
        ("--nonsense",),
    ],
    ids=" ".join,
)
def test_bad_usage(run: Runner, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.status == 2
    assert done.out == ""
    assert "Error" in done.talk


def test_report_of_leaks(run: Runner, saved: Path) -> None:
    done = run("report", saved)
    assert done.status == 1
    assert "2 leaked blocks" in done.out
    assert done.talk == ""


def test_report_without_leaks(run: Runner, saved: Path) -> None:
    saved.write_bytes(Stream().encoded())
    assert run("report", saved).status == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"\x7fELF" + bytes(100), "not a reachscan stream"),
        (LEAKY.encoded()[:-1], "cut off"),
        (streams.failure("layout-unknown", "the heap is odd"), "the heap is odd"),
    ],
    ids=["empty", "foreign", "truncated", "failure"],
)
def test_bad_files(run: Runner, saved: Path, content: bytes, says: str) -> None:
    saved.write_bytes(content)
    assert_refused(run("report", saved), says)


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "/no/such/directory/file"),
        ("--save", "/no/such/directory/file"),
        ("--baseline", "/no/such/file"),
        ("--suppressions", "/no/such/file"),
    ],
    ids=" ".join,
)
def test_a_path_that_cannot_be_used_is_told_before_the_scan(
    run: Runner, target: int, fake_helper: Install, tmp_path: Path, words: tuple[str, ...]
) -> None:
    fake_helper(Stream().encoded())
    began = tmp_path / "arguments"
    assert run(target).status == 0
    began.unlink()
    done = run(target, *words)
    assert done.status == 2 and words[0] in done.talk and "/no/such" in done.talk
    assert not began.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into every directory")
def test_a_directory_that_takes_no_file(run: Runner, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o500)
    done = run("report", saved, "-o", tmp_path / "closed" / "report")
    assert done.status == 2 and "no file can be made" in done.talk


def test_a_dash_is_stdout(run: Runner, saved: Path, tmp_path: Path) -> None:
    assert json.loads(run("report", saved, "--json", "-o", "-").out)["leaks"]["allocations"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["saved.rsc"]


def test_report_to_a_file(run: Runner, saved: Path, tmp_path: Path) -> None:
    done = run("report", saved, "--json", "-o", tmp_path / "out.json")
    assert (done.status, done.out, done.talk) == (1, "", "")
    assert json.loads((tmp_path / "out.json").read_text())["leaks"]["allocations"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "saved.rsc"]


def test_report_to_a_full_disk(run: Runner, saved: Path) -> None:
    assert_refused(run("report", saved, "-o", "/dev/full"), "/dev/full", "No space left")


def test_all_lifts_the_limit(run: Runner, saved: Path) -> None:
    saved.write_bytes(Stream(leaks=[Leak(8 * n) for n in range(30)]).encoded())
    assert len(json.loads(run("report", saved, "--json").out)["groups"]) == 20
    assert len(json.loads(run("report", saved, "--json", "--all").out)["groups"]) == 30
    assert len(json.loads(run("report", saved, "--json", "--all", "--limit", 3).out)["groups"]) == 3


def test_a_reader_that_has_seen_enough(saved: Path) -> None:
    saved.write_bytes(Stream(leaks=[Leak(8) for _ in range(50_000)]).encoded())
    command = [sys.executable, "-m", "reachscan", "report", str(saved), "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_diff_tells_by_its_status_whether_anything_grew(
    run: Runner, saved: Path, tmp_path: Path
) -> None:
    less, report = tmp_path / "less.rsc", tmp_path / "less.json"
    less.write_bytes(Stream(leaks=[Leak(24, [CODE + 8])]).encoded())
    run("report", less, "--json", "-o", report)
    assert run("diff", saved, saved).status == 0
    assert run("diff", saved, less).status == 0
    for old in (less, report):
        done = run("diff", old, saved)
        assert (done.status, done.talk) == (1, "")
        assert "+100 B" in done.out and "grown" in done.out
    assert json.loads(run("diff", less, saved, "--json").out)["by"]["bytes"] == 100
    assert "event=change" in run("diff", less, saved, "--format", "logfmt").out


def test_only_what_counts_makes_the_status_1(run: Runner, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "known.supp"
    file.write_text("module: libexample*  # it is known\n")
    done = run("report", saved, "--suppressions", file)
    assert (done.status, done.talk) == (0, "")
    assert "2 suppressed" in done.out and "it is known" in " ".join(done.out.split())
    assert run("report", saved, "--suppressions", file, "--no-default-suppressions").status == 0
    assert run("report", saved, "--baseline", saved).status == 0
    less = tmp_path / "less.rsc"
    less.write_bytes(Stream(leaks=[Leak(24, [CODE + 8])]).encoded())
    assert run("report", saved, "--baseline", less).status == 1


def test_what_is_only_possible_makes_the_status_1_if_wanted(run: Runner, tmp_path: Path) -> None:
    leaks = [Leak(24, [CODE + 8]), Leak(40)]
    for doubted, status in ((2, 0), (1, 1)):
        file = tmp_path / "doubted.rsc"
        file.write_bytes(Stream(leaks=leaks, doubts=[(0, doubted, 2)]).encoded())
        for judged in ([], ["--no-default-suppressions"]):
            assert run("report", file, *judged).status == status
            assert run("report", file, "--strict", *judged).status == 1


def test_bad_suppressions_are_bad_usage(run: Runner, target: int, tmp_path: Path) -> None:
    file = tmp_path / "bad.supp"
    file.write_text("# fine\nsize: huge\n")
    assert_refused(run(target, "--suppressions", file), "bad.supp:2", "huge", status=2)
    assert_refused(run(target, "--baseline", file), "neither a raw scan nor a JSON report")


def test_diff_refuses_what_it_cannot_read(run: Runner, saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("hello")
    assert_refused(run("diff", saved, other), "other", "neither", "--json")
    assert run("diff", saved).status == 2
    assert run("diff", saved, other, "-o", other).status == 2


def test_scan_and_its_options(
    run: Runner, target: int, fake_helper: Install, tmp_path: Path
) -> None:
    fake_helper(LEAKY.encoded())
    done = run(target, "--method", "copy", "--threads", 3, "--timeout", 5, "--contents", 100)
    assert done.status == 1
    assert "2 leaked blocks" in done.out
    *asked, wake, _ = (tmp_path / "arguments").read_text().split()
    assert asked == f"--pid {target} --method copy --contents 100 --threads 3 --timeout 5".split()
    assert wake == "--wake"


def test_options_may_come_first(run: Runner, target: int, fake_helper: Install) -> None:
    fake_helper(Stream().encoded())
    done = run("--json", target)
    assert done.status == 0
    assert json.loads(done.out)["complete"] is True


def test_a_kept_scan_reports_the_same_elsewhere(
    run: Runner, target: int, fake_helper: Install, tmp_path: Path
) -> None:
    fake_helper(LEAKY.encoded())
    kept = tmp_path / "kept.rsc"
    for options in (["--json", "--all"], ["--format", "logfmt"], []):
        scanned = run(target, "--save", kept, *options)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert run("report", kept, *options) == scanned


def test_a_full_disk_does_not_cost_the_report(
    run: Runner, target: int, fake_helper: Install
) -> None:
    fake_helper(LEAKY.encoded())
    done = run(target, "--save", "/dev/full")
    assert done.status == 3
    assert "2 leaked blocks" in done.out
    assert "No space left" in done.talk


def test_a_failed_scan_leaves_no_file(
    run: Runner, target: int, fake_helper: Install, tmp_path: Path
) -> None:
    fake_helper(streams.failure("target-exited", "process 1 exited"), "exit 1")
    (tmp_path / "to").mkdir()
    assert_refused(run(target, "--save", tmp_path / "to/kept.rsc"), "process 1 exited")
    assert list((tmp_path / "to").iterdir()) == []


@pytest.mark.parametrize(
    ("then", "status", "says"),
    [
        ("kill -9 $$", 3, "killed by signal 9 (SIGKILL)"),
        ("kill -11 $$", 70, "killed by signal 11 (SIGSEGV)"),
        ("echo last words >&2; exit 4", 70, "last words"),
        ("exit 2", 70, "does not understand"),
        ("exit 0", 3, "cut off"),
    ],
)
def test_a_helper_that_breaks_off(
    run: Runner, target: int, fake_helper: Install, then: str, status: int, says: str
) -> None:
    fake_helper(LEAKY.encoded()[:200], then)
    assert_refused(run(target), says, status=status)


def test_a_target_that_exits_between_repeated_scans(
    run: Runner, target: int, fake_helper: Install
) -> None:
    fake_helper(Stream().encoded(), f"kill -9 {target}")
    done = run(target, "--confirm", 3, "--confirm-every", 3600)
    assert_refused(done, f"process {target} exited after 1 of 3 scans")


def test_repeated_scans_keep_to_the_timeout(run: Runner, target: int, fake_helper: Install) -> None:
    fake_helper(Stream().encoded())
    done = run(target, "--confirm", 2, "--confirm-every", 3600, "--timeout", 1)
    assert_refused(done, "took longer than")


def test_repeated_scans_tell_how_often(
    run: Runner, target: int, fake_helper: Install, tmp_path: Path
) -> None:
    fake_helper(Stream().encoded(), f"echo >> {tmp_path}/calls")
    done = run(target, "--confirm", 3, "--confirm-every", 0)
    assert done.status == 0
    assert "lost in each of 3 scans" in done.out
    assert len((tmp_path / "calls").read_text().splitlines()) == 3
    assert "--digests" in (tmp_path / "arguments").read_text()


def test_no_helper(run: Runner, target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(helper.OVERRIDE, "/no/such/helper")
    assert_refused(run(target), "/no/such/helper", "make build")


def test_a_stuck_helper_is_stopped(
    run: Runner, target: int, fake_helper: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "GRACE_SECONDS", 0.0)
    fake_helper(LEAKY.encoded()[:20], "exec sleep 1000")
    assert_refused(run(target, "--timeout", "0.05"), "stuck")


def test_a_scan_that_takes_too_long(run: Runner, target: int, fake_helper: Install) -> None:
    fake_helper(LEAKY.encoded())
    assert_refused(run(target, "--timeout", "0.000001"), "took longer than 1e-06 s", "--timeout")


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_being_interrupted(target: int, tmp_path: Path, fake_helper: Install, name: str) -> None:
    progress = {"phase": 5, "reserved": 0, "done": 1, "total": 2}
    (tmp_path / "progress").write_bytes(wire.encode(wire.PROGRESS, progress))
    fake_helper(
        wire.hello_bytes(),
        f"trap '' PIPE; kill -{name} $PPID\n"
        f"while cat {tmp_path}/progress; do :; done 2>&-\ntouch {tmp_path}/let-go",
    )
    # A shell without job control lets what it starts in the background ignore SIGINT.
    restored = ["env", "--default-signal=INT,TERM"]
    command = [*restored, sys.executable, "-m", "reachscan", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stdout == ""
    assert done.stderr.strip() == "reachscan: interrupted: no report"
    assert (tmp_path / "let-go").exists()


def test_a_bug_is_one_line_and_a_traceback_only_with_v(
    run: Runner, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("reachscan.cli.commands.report.load", broken)
    assert_refused(run("report", saved), "bug", "ZeroDivisionError: oh", status=70)
    assert "Traceback" in run("report", saved, "-v").talk


def test_colour_only_for_terminals_that_want_it(saved: Path) -> None:
    script = "import sys; sys.stdout.isatty = lambda: True; " + CALL_MAIN
    command = [sys.executable, "-c", script, "report", str(saved)]
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
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
        wanted = {"80": 80, "150": 150}.get(columns, USUAL_WIDTH)
        assert max(map(len, done.stdout.splitlines())) in range(wanted - 10, wanted + 1)


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
    bad = subprocess.run([*command[:-1], "/no/such"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and bad.stdout == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("reachscan 4711 --max", "--max-pause"),
        ("reachscan bash --method li", "live"),
        ("reachscan heap 4711 --js", "--json"),
        ("reachscan --js", "--json"),
        ("reachscan he", "heap"),
    ],
)
def test_shells_can_complete(words: str, expected: str) -> None:
    variables = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_REACHSCAN_COMPLETE": "bash_complete",
    }
    command = [sys.executable, "-c", CALL_MAIN]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == [f"plain,{expected}"]


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
