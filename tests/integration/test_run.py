"""`reachscan run`: a command is recorded, and reported on at its very end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import victims
from worlds import CLI_AS_USER, NOBODY

from reachscan.capture.launch import Launch
from reachscan.capture.recording_options import RecordingOptions
from reachscan.errors import ExitStatus, UnsupportedKernelError

RUN = (sys.executable, "-m", "reachscan", "run")
SCANNED = "event=scan "
IN_MAIN, AT_EXIT, IN_DESTRUCTOR = 1016, 2008, 3016
"""Usable sizes of the blocks that the fixture loses."""


def run(*words: object, options: tuple[str, ...] = (), **given: Any) -> Any:
    command = [*RUN, *options, "--", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **given)


def program() -> Path:
    return victims.build("run_to_end", ("-fno-optimize-sibling-calls",))


def reports(file: Path) -> list[dict[str, Any]]:
    decoder, text, found = json.JSONDecoder(), file.read_text(), []
    while text.strip():
        report, end = decoder.raw_decode(text.lstrip())
        found.append(report)
        text = text.lstrip()[end:]
    return found


@pytest.mark.parametrize(
    ("way", "lost"),
    [("return", {IN_MAIN, AT_EXIT, IN_DESTRUCTOR}), ("_exit", {IN_MAIN}), ("exec", {IN_MAIN})],
)
def test_the_report_is_of_the_last_moment(way: str, lost: set[int], tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run(program(), way, 0, options=("--json", "-o", str(file)))
    assert done.returncode == ExitStatus.LEAKS, done.stderr
    assert done.stdout == ""
    (report,) = reports(file)
    assert {group["size"] for group in report["groups"]} == lost


def test_what_is_remembered_of_stacks_keeps_nothing_alive(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    flags = ("-fomit-frame-pointer", "-fno-optimize-sibling-calls")
    run(victims.build("frame_pointer_data", flags), options=("--json", "-o", str(file)))
    (report,) = reports(file)
    assert {group["size"] for group in report["groups"]} == {4008}
    assert sum(group["allocations"] for group in report["groups"]) == 9


def test_the_command_has_its_streams_to_itself() -> None:
    done = run(program(), "echo", 0, input="one\ntwo\n")
    assert done.stdout == "one\ntwo\n"
    assert "3 leaked blocks" in done.stderr


@pytest.mark.parametrize(
    ("words", "options", "status"),
    [
        (("return", 0), (), 1),
        (("return", 9), (), 9),
        (("return", 0), ("--error-exitcode", "42"), 42),
        (("return", 9), ("--error-exitcode", "42"), 9),
        (("clean", 0), (), 0),
        (("clean", 9), (), 9),
        (("child", 0), (), 1),
        (("kill", 0), (), 128 + 9),
        (("term", 0), (), 128 + 15),
    ],
)
def test_exit_status(words: tuple[object, ...], options: tuple[str, ...], status: int) -> None:
    assert run(program(), *words, options=options).returncode == status


def test_a_child_does_not_report(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    run(program(), "child", 0, options=("--json", "-o", str(file)))
    assert len(reports(file)) == 1


@pytest.mark.parametrize(
    ("when", "meanwhile", "at_end"), [(("--at", "1"), 1, 1), (("--every", "0.1"), 2, None)]
)
def test_reports_while_the_command_runs(
    when: tuple[str, str], meanwhile: int, at_end: int | None
) -> None:
    """The command waits for its input, which it gets when it was reported on.

    Nothing comes after the report on its end: it could only fail.
    """
    words = [*RUN, "--format", "logfmt", *when, "--", str(program()), "echo", "0"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stderr is not None
        for _ in range(meanwhile):
            assert any(line.startswith(SCANNED) for line in process.stderr)
        out, rest = process.communicate("one\n")
    last = [line for line in rest.splitlines() if line.startswith(SCANNED)]
    assert at_end is None or len(last) == at_end
    assert " leaks=3 " in last[-1]
    assert all(line.startswith("event=") for line in rest.splitlines()), rest
    assert (process.returncode, out) == (ExitStatus.LEAKS, "one\n")


def test_a_kernel_that_cannot_tell_of_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    started = tmp_path / "started"
    with pytest.raises(UnsupportedKernelError):
        Launch(["touch", str(started)], RecordingOptions())
    assert not started.exists()


def test_a_command_that_is_not_there() -> None:
    done = run("no-such-command")
    assert done.returncode == 127
    assert done.stderr == "reachscan: there is no command no-such-command\n"


def test_a_file_that_is_no_command(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no program")
    done = run(file)
    assert done.returncode == 126
    assert done.stderr == f"reachscan: {file} is not executable\n"
    file.chmod(0o755)
    assert run(file).returncode == 126


def test_what_cannot_be_a_command(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 126
    assert done.stderr == f"reachscan: {tmp_path} is a directory\n"
    done = run("")
    assert done.returncode == 127
    assert done.stderr == "reachscan: the name of the command is empty\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_command_that_may_not_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o700)
    words = ["run", "--", str(tmp_path / "closed/command")]
    command = [sys.executable, "-c", CLI_AS_USER, str(NOBODY), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 126
    assert done.stderr == f"reachscan: cannot start {words[-1]}: Permission denied\n"


def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = run(script)
    assert done.returncode == 127
    assert "/no/such/interpreter" in done.stderr


def test_of_a_script_the_interpreter_is_recorded(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nexit 5\n")
    script.chmod(0o755)
    assert run(script).returncode == 5


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    static = victims.build("run_to_end", ("-static",))
    mark = tmp_path / "mark"
    script = tmp_path / "script"
    script.write_text(f"#!{static} {mark}\n")
    script.chmod(0o755)
    for command in (static, script):
        done = run(command)
        assert done.returncode == ExitStatus.FAILED
        assert "linked statically" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a program of another user")
def test_a_program_with_rights_of_its_own_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "program"
    shutil.copy(program(), file)
    os.chown(file, 1, 1)
    file.chmod(0o4755)
    done = run(file)
    assert done.returncode == ExitStatus.FAILED
    assert "the loader ignores preloaded libraries" in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_bug(closed: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = [*RUN, "--json"]
    for more in ((), ("-o", str(file))):
        words = [*command, *more, "--", str(program()), "return", "0"]
        done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *words], check=False)
        assert done.returncode == ExitStatus.LEAKS
    assert len(reports(file)) == 1


def test_stdout_of_the_command_may_be_a_file(tmp_path: Path) -> None:
    """A stream that can seek, while the one of the reports cannot."""
    command = [*RUN, "--", str(program()), "return", "0"]
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == ExitStatus.LEAKS
    assert "3 leaked blocks" in done.stderr


@pytest.mark.parametrize("more", [(), ("-o", "heap.pb.gz", "--every", "60")])
def test_a_format_for_one_report_needs_a_file_for_it(more: tuple[str, ...]) -> None:
    done = run("true", options=("--format", "pprof", *more))
    assert done.returncode == ExitStatus.USAGE
    assert "--format pprof makes a file of one report" in done.stderr


def test_two_dashes_are_needed() -> None:
    command = [*RUN, "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ExitStatus.USAGE
    assert "put -- before the command" in done.stderr


def test_the_process_group_and_children_are_as_without(tmp_path: Path) -> None:
    """Commands that start many others end as they would; these are recorded, but not reported."""
    makefile = tmp_path / "Makefile"
    makefile.write_text("all:\n\t@sh -c 'echo one; exec true' && echo two\n\t@false\n")
    done = run("make", "-s", "-C", tmp_path)
    assert done.returncode == 2
    assert done.stdout == "one\ntwo\n"


def test_the_command_outlives_reachscan() -> None:
    """If reachscan is killed while the command runs, that goes on, and ends without a report."""
    script = "kill -9 $PPID; echo still here"
    command = [*RUN, "--", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # Up to the end of the pipe, which only the command holds by then.
        assert process.stdout.read() == b"still here\n"
    assert process.returncode == -9


def test_a_command_that_a_signal_ends_is_said_to_leave_no_report() -> None:
    done = run("sh", "-c", "kill -9 $$")
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stderr == "reachscan: the command ended without a report: signal 9 ended it\n"


def test_a_command_that_gives_up_the_recorder_is_said_to_leave_no_report() -> None:
    done = run("env", "-i", "PATH=/usr/bin:/bin", "true")
    assert done.returncode == ExitStatus.FAILED
    assert "became a program that was started without LD_PRELOAD" in done.stderr


def test_a_command_without_room_for_the_tables_is_reported_on_without_stacks() -> None:
    limited = f"ulimit -v 500000; exec {program()} return 0"
    done = run("sh", "-c", limited, options=("--memory", "1G"))
    assert done.returncode == ExitStatus.LEAKS, done.stderr
    assert "the command was not recorded: it got no memory for the tables" in done.stderr
    assert "not recorded" not in run("sh", "-c", limited).stderr


def test_a_signal_asks_for_a_report_and_is_not_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "reports.json"
    script = "trap 'echo trapped' USR1; kill -USR1 $$; echo sent; read line; echo ended"
    command = [sys.executable, "-m", "reachscan", "run", "--json", "-o", str(file)]
    with subprocess.Popen(
        [*command, "--signal", "usr1", "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.readline() == "sent\n"
        victims.wait_until(lambda: file.exists() and file.read_text().endswith("}\n"), "the report")
        assert len(reports(file)) == 1
        out, _ = process.communicate("\n")
    assert out == "ended\n"
    assert len(reports(file)) == 2


@pytest.mark.parametrize("name", ["KILL", "SIGSEGV", "NOPE"])
def test_signals_that_cannot_ask_are_refused(name: str) -> None:
    done = run("true", options=("--signal", name))
    assert done.returncode == ExitStatus.USAGE
    assert "is not the name of a signal that a program can handle" in done.stderr


def test_stdout_is_shared_if_it_is_asked_for() -> None:
    done = run(program(), "return", 0, options=("--json", "-o", "-"))
    assert done.returncode == ExitStatus.LEAKS
    assert json.loads(done.stdout)["format"] == "reachscan-report"
    assert done.stderr == ""


def test_stdout_by_its_path_keeps_what_is_behind_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    words = " ".join(map(str, [*RUN, "-o", "/dev/stdout", "--", program(), "return", 0]))
    subprocess.run(["sh", "-c", f"{words} >> {log}"], check=False)
    assert log.read_text().startswith("before\n") and "3 leaked blocks" in log.read_text()


def test_nothing_is_started_if_the_report_cannot_be_written(tmp_path: Path) -> None:
    started, place = tmp_path / "started", tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as nobody_reads:
        nobody_reads.bind(str(place))
        done = run("touch", started, options=("-o", str(place)))
    assert done.returncode == ExitStatus.FAILED
    assert done.stderr.startswith(f"reachscan: cannot write {place}: ")
    assert not started.exists()


def test_a_pipe_without_a_reader_can_be_interrupted(tmp_path: Path) -> None:
    pipe, started = tmp_path / "pipe", tmp_path / "started"
    os.mkfifo(pipe)
    words = [*RUN, "-o", str(pipe), "--", "touch", str(started)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        call = Path(f"/proc/{process.pid}/syscall")
        flags = f"{os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC:#x}"
        try:
            victims.wait_until(lambda: flags in call.read_text(), "it opens the pipe")
        finally:
            process.terminate()
        assert process.wait() == ExitStatus.INTERRUPTED
    assert not started.exists()


@pytest.mark.parametrize(("options", "mode"), [((), 0o600), (("--contents", "0"), 0o644)])
def test_memory_of_the_command_is_for_nobody_else(
    tmp_path: Path, options: tuple[str, ...], mode: int
) -> None:
    file = tmp_path / "report"
    file.write_text("an earlier report\n" * 1000)
    file.chmod(0o644)
    run(program(), "return", 0, options=("-o", str(file), *options))
    assert file.stat().st_mode & 0o777 == mode
    assert "3 leaked blocks" in file.read_text() and "earlier" not in file.read_text()


def test_a_report_is_not_lost_to_a_command_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("an earlier report\n")
    assert run("no-such-command", options=("-o", str(file))).returncode == 127
    assert file.read_text() == "an earlier report\n"


def test_a_command_does_not_wait_for_somebody_who_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "reports.json"
    command = [sys.executable, "-m", "reachscan", "run", "--json", "-o", str(file), "--"]
    script = "echo $$; read line"
    with subprocess.Popen(
        [*command, "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        pid = int(process.stdout.readline())
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("\n")
        process.stdin.flush()
        victims.wait_until(lambda: victims.thread_states(pid) == ["Z"], "the command has ended")
        process.send_signal(signal.SIGCONT)
        assert process.wait() == ExitStatus.FAILED
