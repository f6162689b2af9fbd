"""Scans as the command line sees them: one sentence for each way to fail."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import streams
from command_lines import LEAKY, Install, Runner, assert_refused
from seen_leaks import Seen, stream
from streams import HEAP_START, Stream

from reachscan.capture import helper, launch
from reachscan.recording import wire


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


def test_one_of_several_processes_that_fails_makes_the_status_that_of_the_failure(
    run: Runner, sleeper: subprocess.Popen[bytes], fake_helper: Install
) -> None:
    fake_helper(Stream().encoded()[:-4])
    done = run(f"nap{os.getpid()}", "--all-processes")
    assert done.status == 3 and "cut off" in done.talk


def test_a_bug_outweighs_failures_of_later_processes(
    run: Runner, sleeper: subprocess.Popen[bytes], fake_helper: Install, tmp_path: Path
) -> None:
    crash_once = f"mkdir {tmp_path}/crashed 2>/dev/null && kill -SEGV $$; exit 0"
    fake_helper(Stream().encoded()[:-4], crash_once)
    with subprocess.Popen(sleeper.args) as second:
        done = run(f"nap{os.getpid()}", "--all-processes")
        second.kill()
    assert done.talk.index("SIGSEGV") < done.talk.index("cut off")
    assert done.status == 70


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


def test_a_watch_says_once_that_its_scans_are_late(
    run: Runner, target: int, fake_helper: Install
) -> None:
    fake_helper(Stream().encoded())
    done = run("watch", target, "--every", "0.0001", "--count", 4, "--logfmt")
    assert done.out.count("event=scan") == 4
    assert done.talk.count("a scan takes longer than 0.0001 s") == 1


def test_what_is_advised_where_there_is_no_python(
    run: Runner, target: int, fake_helper: Install
) -> None:
    why = "Python objects were asked for, but no arena of CPython's allocator was found"
    fake_helper(streams.failure("layout-unknown", why))
    assert_refused(run(target, "--python"), f"{why}; leave out --python\n")


def test_connecting_keeps_to_the_timeout(run: Runner) -> None:
    done = run("1", "--on", "exec:sh -c 'exec sleep 1000'", "--timeout", 1)
    assert_refused(done, "no shell answers at exec:sh", "it has been silent for 1 s")


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


def test_a_target_that_exits_after_the_first_of_thorough_scans(
    run: Runner, target: int, fake_helper: Install
) -> None:
    frames = stream(Seen(HEAP_START, digest=7))
    fake_helper(b"".join(map(wire.frame_bytes, frames)), f"kill -9 {target}")
    done = run(target, "--thorough", "--json")
    assert done.status == 1
    report = json.loads(done.out)
    assert (report["leaks"]["allocations"], report["moments"]["scans"]) == (1, 1)
    (warning,) = report["warnings"]
    assert warning["code"] == "ended-early"
    assert warning["message"] == f"process {target} exited after 1 of 5 scans"


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


@pytest.mark.parametrize("place", ["missing.so", "file/recorder.so"])
def test_no_recorder(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(launch, "RECORDER", tmp_path / place)
    assert_refused(run("run", "--", "true"), f"{place} is missing or unreadable", "make build")


def test_a_stuck_helper_is_stopped(
    run: Runner, target: int, fake_helper: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "GRACE_SECONDS", 0.0)
    fake_helper(LEAKY.encoded()[:20], "exec sleep 1000")
    assert_refused(run(target, "--timeout", "0.05"), "stuck")


def test_a_scan_that_takes_too_long(run: Runner, target: int, fake_helper: Install) -> None:
    fake_helper(LEAKY.encoded())
    assert_refused(run(target, "--timeout", "0.000001"), "took longer than 1e-06 s", "--timeout")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_being_interrupted(target: int, tmp_path: Path, fake_helper: Install, name: str) -> None:
    progress = {"phase": 5, "reserved": 0, "done": 1, "total": 2}
    (tmp_path / "progress").write_bytes(wire.encode(wire.PROGRESS, progress))
    fake_helper(
        wire.hello_bytes(),
        f"trap '' PIPE; kill -{name} $PPID\n"
        f"while cat {tmp_path}/progress; do :; done 2>&-\ntouch {tmp_path}/let-go",
    )
    # A shell without job control lets what it starts in the background ignore SIGINT.
    restored = ["env", "--default-signal=INT,TERM,HUP"]
    (tmp_path / "to").mkdir()
    saved = ("--save", str(tmp_path / "to/kept.rsc"))
    command = [*restored, sys.executable, "-m", "reachscan", str(target), *saved]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert list((tmp_path / "to").iterdir()) == []
    assert done.stdout == ""
    assert done.stderr.strip() == "reachscan: interrupted: no report"
    assert (tmp_path / "let-go").exists()


def test_a_hangup_that_is_ignored_interrupts_nothing(target: int, fake_helper: Install) -> None:
    fake_helper(Stream().encoded(), "kill -HUP $PPID")
    command = ["env", "--ignore-signal=HUP", sys.executable, "-m", "reachscan", str(target)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_bug_is_one_line_and_a_traceback_only_with_v(
    run: Runner, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("reachscan.cli.commands.report.load", broken)
    assert_refused(run("report", saved), "bug", "ZeroDivisionError: oh", status=70)
    assert "Traceback" in run("report", saved, "-v").talk


def test_too_little_memory_is_no_bug(
    run: Runner, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("reachscan.cli.commands.report.load", broken)
    assert_refused(run("report", saved), "too little memory", "ulimit -v")


@pytest.mark.parametrize(("name", "status"), [("_ctypes", 3), ("reachscan.nothing", 70)])
def test_only_a_missing_module_of_ours_is_a_bug(
    run: Runner, saved: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("reachscan.cli.commands.report.load", broken)
    assert_refused(run("report", saved), name, status=status)
