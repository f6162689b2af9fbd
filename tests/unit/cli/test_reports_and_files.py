"""Reports on saved scans: their exit statuses, and files that are whole or absent."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import streams
from command_lines import LEAKY, Runner, assert_refused
from streams import CODE, Leak, Stream

from reachscan.cli import console
from reachscan.cli.console import Output
from reachscan.errors import OutputError


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
        (b"\x7fELF" + bytes(100), "not a saved scan"),
        (LEAKY.encoded()[:-1], "cut off"),
        (streams.failure("layout-unknown", "the heap is odd"), "the heap is odd"),
    ],
    ids=["empty", "foreign", "truncated", "failure"],
)
def test_bad_files(run: Runner, saved: Path, content: bytes, says: str) -> None:
    saved.write_bytes(content)
    assert_refused(run("report", saved), f"{saved}: ", says)


def test_a_json_report_is_told_from_a_scan(run: Runner, saved: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    run("report", saved, "--json", "-o", report)
    assert_refused(run("report", report), f"{report}: this is JSON", "`diff` and --baseline read")


@pytest.mark.parametrize("format_", ["json", "logfmt", "text"])
def test_a_file_name_that_is_no_utf_8(
    run: Runner, saved: Path, tmp_path: Path, format_: str
) -> None:
    known = tmp_path / os.fsdecode(b"known\xff")
    known.write_text("size: 24\n")
    baseline = tmp_path / os.fsdecode(b"base\xff")
    baseline.write_bytes(saved.read_bytes())
    written = run("report", saved, "--format", format_, "--suppressions", known, "--all").out
    written += run("report", saved, "--format", format_, "--baseline", baseline).out
    written += run("diff", baseline, saved, "--format", format_).out
    assert "base\\xff" in written.replace("\\\\", "\\")
    assert "\\udcff" not in written and "\udcff" not in written


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into every directory")
def test_a_directory_that_takes_no_file(run: Runner, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(0o500)
    done = run("report", saved, "-o", tmp_path / "closed" / "report")
    assert done.status == 2 and "no file can be made" in done.talk


@pytest.mark.parametrize("option", ["-o", "--save"])
def test_paths_that_nothing_can_be_said_of(
    run: Runner, target: int, tmp_path: Path, option: str
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path, why in (
        (tmp_path / ("long" * 100), "File name too long"),
        (loop / "report", ""),  # what is wrong with it depends on the version of Python
        (tmp_path / "no" / "report", "there is no directory"),
    ):
        done = run(target, option, path)
        assert (done.status, done.out) == (2, "") and why in done.talk, done.talk


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


def test_one_of_several_reports_that_cannot_be_written_leaves_the_others_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Output(path=tmp_path / "log")
    monkeypatch.setattr(sys, "stdout", None)
    output = console.beside_command(wanted, console.open_beside(wanted, shares_stdout=False))
    output.write(lambda _: iter(["first"]))
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, unlimited[1]))
    try:
        with pytest.raises(OutputError, match="log: File too large"):
            output.write(lambda _: iter(["fits", "long" * 5000]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    output.write(lambda _: iter(["third"]))
    assert (tmp_path / "log").read_text() == "first\nthird\n"


def test_all_lifts_the_limit(run: Runner, saved: Path) -> None:
    saved.write_bytes(Stream(leaks=[Leak(8 * n) for n in range(30)]).encoded())
    assert len(json.loads(run("report", saved, "--json").out)["groups"]) == 20
    assert len(json.loads(run("report", saved, "--json", "--all").out)["groups"]) == 30
    assert len(json.loads(run("report", saved, "--json", "--all", "--limit", 3).out)["groups"]) == 3


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


@pytest.mark.parametrize(
    "words",
    [
        "core INPUT -o INPUT",
        "core INPUT --save LINK",
        "report INPUT -o LINK",
        "diff INPUT INPUT -o INPUT",
        "1 -o INPUT --suppressions INPUT",
        "1 --baseline INPUT -o INPUT",
        "1 --baseline INPUT --save INPUT",
        "1 --save NEW -o NEW",
        "where 1 --baseline INPUT --save INPUT",
        "heap 1 --save NEW -o NEW",
        "run -o INPUT --suppressions INPUT -- true",
        "run -o INPUT -- INPUT",
        "run -o LINK -- INPUT arguments",
    ],
)
def test_a_file_is_not_written_if_it_is_also_used_otherwise(
    run: Runner, tmp_path: Path, words: str
) -> None:
    file, link = tmp_path / "input", tmp_path / "link"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    link.symlink_to(file)
    names = {"INPUT": file, "LINK": link, "NEW": tmp_path / "new"}
    done = run(*(names.get(word, word) for word in words.split()))
    assert done.status == 2
    assert " are the same file, " in done.talk and "name another one for -" in done.talk
    assert file.read_text() == "#!/bin/sh\n" and link.is_symlink()


def test_stdout_by_its_path_is_what_it_is_open_for(saved: Path, tmp_path: Path) -> None:
    """A report to it neither replaces nor truncates the file, and what follows comes after it."""
    log = tmp_path / "log"
    reported = f"{sys.executable} -m reachscan report {saved} -o"
    for redirection, path in ((">>", "/dev/stdout"), (">", "/dev/fd/1"), (">>", "/proc/self/fd/1")):
        log.write_text("before\n")
        script = f"(echo first; {reported} {path}; echo last) {redirection} {log}"
        subprocess.run(["sh", "-c", script], check=True)
        lines = log.read_text().splitlines()
        kept = ["before"] if redirection == ">>" else []
        assert [*lines[: len(kept) + 1], lines[-1]] == [*kept, "first", "last"]
        assert "2 leaked blocks" in log.read_text()


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/2"])
def test_a_raw_scan_does_not_go_to_a_stream(run: Runner, path: str) -> None:
    done = run("1", "--save", path)
    assert done.status == 2 and f"a raw scan cannot go to {path}; name a file" in done.talk


def test_a_stream_that_cannot_be_written(run: Runner, saved: Path) -> None:
    with saved.open("rb") as file:
        path = f"/dev/fd/{file.fileno()}"
        done = run("report", saved, "-o", path)
    assert done.status == 2 and f"{path} is not open for writing" in done.talk
