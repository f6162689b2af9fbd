"""Leaks over time, of a real program that leaks when told to."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from growing import growing_jq
from scans import PATIENCE, Finished, run_cli
from victims import traced

FEW, MANY = 40, 400


def diff(*words: object) -> Finished:
    return run_cli(["diff", *words, "--json"])


def test_diff_of_any_mix_of_files_tells_what_grew(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("1.rsc", "1.json", "2.rsc", "2.json")}
    with growing_jq() as jq:
        for number, records in ((1, FEW), (2, MANY)):
            jq.leak(records)
            raw, report = files[f"{number}.rsc"], files[f"{number}.json"]
            assert run_cli([jq.pid, "--json", "-o", report, "--save", raw]).status == 1
    for old in ("1.rsc", "1.json"):
        for new in ("2.rsc", "2.json"):
            done = diff(files[old], files[new])
            assert done.status == 1, done.talk
            found = json.loads(done.out)
            # The registers of a waiting process may hold on to the last few blocks.
            assert 2 * MANY - 8 <= found["by"]["allocations"] <= 2 * MANY + 8
            assert (
                sum(c["new"]["bytes"] - c["old"]["bytes"] for c in found["changes"])
                == (found["by"]["bytes"])
            )
            assert found["warnings"] == []
            back = json.loads(diff(files[new], files[old]).out)
            assert back["by"]["allocations"] == -found["by"]["allocations"]
    for number in (1, 2):
        done = diff(files[f"{number}.rsc"], files[f"{number}.json"])
        assert (done.status, json.loads(done.out)["changes"]) == (0, [])


@contextmanager
def watching(pid: int, *options: object) -> Iterator[subprocess.Popen[str]]:
    """Start a watch, whose lines can be read as they come."""
    words = ["watch", str(pid), "--logfmt", *map(str, options)]
    # A shell without job control lets what it starts in the background ignore SIGINT.
    command = ["env", "--default-signal=INT,TERM", sys.executable, "-m", "reachscan", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str], event: str) -> dict[str, str]:
    """Return the next line that tells of such an event."""
    assert process.stdout
    for line in process.stdout:
        fields = dict(word.split("=", 1) for word in shlex.split(line))
        if fields["event"] == event:
            return fields
    raise AssertionError(f"the watch ended without an event {event}")


def test_watch_sees_a_process_grow_and_exit() -> None:
    with growing_jq() as jq:
        jq.leak(FEW)
        with watching(jq.pid, "--every", 0.2) as watch:
            first = next_line(watch, "scan")
            assert "by" not in first
            jq.leak(MANY)
            by = 0
            while by < 2 * MANY - 8:
                by += int(next_line(watch, "scan")["by"])
            jq.end()
            end = next_line(watch, "end")
            assert watch.wait(PATIENCE) == 1
    assert (end["why"], end["grew"], end["failures"]) == ("exited", "true", "0")
    assert abs(int(end["by"]) - 2 * MANY) <= 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_sums_up_when_it_is_interrupted(number: signal.Signals) -> None:
    with growing_jq() as jq:
        jq.leak(FEW)
        with watching(jq.pid, "--every", 3600) as watch:
            next_line(watch, "scan")
            watch.send_signal(number)
            end = next_line(watch, "end")
            assert watch.wait(PATIENCE) == 0
            assert watch.stderr and watch.stderr.read() == ""
        jq.end()
    assert (end["why"], end["scans"], end["grew"]) == ("interrupted", "1", "false")


def test_watch_goes_on_when_scans_fail() -> None:
    with growing_jq() as jq, watching(jq.pid, "--every", 0.2) as watch:
        next_line(watch, "scan")
        with traced(jq.pid):
            assert "traced" in next_line(watch, "failure")["error"]
        next_line(watch, "scan")
        jq.end()
        end = next_line(watch, "end")
        assert watch.wait(PATIENCE) == 0
    assert int(end["failures"]) >= 1


def test_watch_counts_and_is_late_where_scans_take_longer() -> None:
    with growing_jq() as jq:
        jq.leak(FEW)
        with watching(jq.pid, "--every", 1e-6, "--count", 3) as watch:
            end = next_line(watch, "end")
            assert watch.wait(PATIENCE) == 0
            assert watch.stderr and "a scan takes longer than 1e-06 s" in watch.stderr.read()
        jq.end()
    assert (end["why"], end["scans"]) == ("counted", "3")


def test_watch_ends_when_nobody_listens() -> None:
    with growing_jq() as jq:
        with watching(jq.pid, "--every", 0.2) as watch:
            next_line(watch, "scan")
            assert watch.stdout
            watch.stdout.close()
            assert watch.wait(PATIENCE) == 0
        jq.end()


def test_watch_of_nothing() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    done = run_cli(["watch", child.pid])
    assert (done.status, done.out) == (3, "")
    assert str(child.pid) in done.talk
