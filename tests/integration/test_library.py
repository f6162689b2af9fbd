"""Programs that have themselves scanned, by libreachscan or by what the environment says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from libraries import ENVIRONMENT, LINKING
from scans import leaked, run_cli, scan
from victims import DEADLINE, Victim, build, running, wait_until

from reachscan import config

SCENES = (
    *("clean", "twice", "stack", "globals", "thread_locals", "odd_blocks", "possible"),
    *("ignored", "disabled", "root_regions", "recoverable", "threads"),
    *("busy_allocator", "forked", "not_dumpable"),
    *("one_tracer", "stale_stack", "registers"),
    *("no_trace", "signals", "closed_descriptors"),
)
SUMMARY = "144 bytes in 2 allocations unreachable out of "


def inside(form: str = "shared") -> str:
    return str(build("inside", LINKING[form]))


def run(
    scene: str, environment: Mapping[str, str] | None = None, form: str = "shared"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [inside(form), scene],
        env={**os.environ, **ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("form", LINKING)
@pytest.mark.parametrize("scene", SCENES)
def test_a_program_finds_its_own_leaks(scene: str, form: str) -> None:
    done = run(scene, form=form)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_static_program_says_why_it_cannot_start(flag: str) -> None:
    program = build("inside", [*LINKING["static"], flag])
    done = subprocess.run(
        [str(program), "clean"], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 127
    assert done.stderr.startswith("reachscan: a program that is linked with -static")
    assert done.stderr.count("\n") == 1


def test_the_text_is_that_of_libmemunreachable() -> None:
    text = run("recoverable").stderr
    report = re.compile(
        r"  1352 bytes in 1 unreachable allocation\n"
        r"  ABI: 'x86_64'\n\n"
        r"  1352 bytes unreachable at ([0-9a-f]+)\n"
        r"   first 32 bytes of contents:\n"
        r"   \1: (00 ){16}\.{16}\n"
        r"   [0-9a-f]+: (00 ){16}\.{16}\n\n"
        r"1352 bytes in 1 allocation unreachable out of \d+ bytes in \d+ allocations?\n"
    )
    assert len(re.findall(report, text)) == 2, text


def test_a_program_in_cpp_reads_the_leaks() -> None:
    program = build("inside_cpp", LINKING["shared"])
    done = subprocess.run([program], capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("standard", ["c++11", "c++14", "c++20"])
def test_the_header_for_cpp_needs_no_new_standard(standard: str, tmp_path: Path) -> None:
    source = tmp_path / "program.cpp"
    source.write_text("#include <reachscan.hpp>\nint main() {}\n")
    strict = [f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *strict, *config.cflags(), source], check=True)


def test_a_helper_that_is_missing_is_named() -> None:
    done = run("clean", {"REACHSCAN_HELPER": "/nowhere/helper"})
    assert done.returncode == 1
    assert "there is no program /nowhere/helper" in done.stderr


def test_a_helper_that_breaks_off_is_no_scan(tmp_path: Path) -> None:
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\nexit 0\n")
    helper.chmod(0o755)
    assert (
        "ended before its answer was complete"
        in run("clean", {"REACHSCAN_HELPER": str(helper)}).stderr
    )
    helper.write_text("no program")
    assert (
        "the helper cannot be executed: errno 8"
        in run("clean", {"REACHSCAN_HELPER": str(helper)}).stderr
    )


@pytest.mark.parametrize("form", LINKING)
def test_what_a_program_says_about_its_memory_holds_for_others(form: str) -> None:
    with running([inside(form), "annotated"]) as victim:
        report = scan(victim.pid, "--all")
    sizes = sorted(int(size) for _, size, _ in leaked(report))
    assert sizes == [4104, 5000]  # the page that is a root, and the block that is lost


def test_a_block_that_is_ignored_is_kept_by_the_annotation() -> None:
    with running([inside(), "ignored_for_others"]) as victim:
        address = victim.ready["block"]
        answer = run_cli(["explain", victim.pid, address])
    assert answer.status == 0 and "can reach it" in answer.out


def test_leaks_of_one_stack_are_similar_if_allocations_are_recorded() -> None:
    # The status is the program's own, unless that is 0.
    done = run_cli(["run", "--error-exitcode", 42, "--", inside(), "similar"])
    assert done.status == 42, done.talk


def test_malloc_leak_info_is_what_was_allocated() -> None:
    program = build("leak_info", LINKING["shared"])
    done = run_cli(["run", "--depth", 16, "--error-exitcode", 0, "--", program])
    assert done.status == 0, done.talk
    # Its records are as deep as the stacks that are recorded: the program expects 16.
    assert run_cli(["run", "--depth", 17, "--", program]).status == 99


def test_without_a_recorder_malloc_leak_info_is_empty() -> None:
    command = [str(build("leak_info", LINKING["shared"])), "alone"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "get_malloc_leak_info: at least one invalid parameter\n"


def test_a_program_has_its_own_allocations_recorded() -> None:
    command = [str(build("leak_info", LINKING["shared"])), "itself"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    assert "'--colour' is not understood" in done.stderr
    assert done.stderr.count("is not being recorded") == 2


@pytest.mark.parametrize("form", LINKING)
@pytest.mark.parametrize("flags", [("-O2",), ("-O0",)], ids=" ".join)
def test_instrumented_functions_tell_of_their_calls(form: str, flags: tuple[str, ...]) -> None:
    program = build("told_calls", (*LINKING[form], *flags, "-pthread", "-finstrument-functions"))
    subprocess.run([str(program)], check=True)


def test_exit_with_leaks() -> None:
    done = run("leaves", {"REACHSCAN_AT_EXIT": "1"})
    assert done.returncode == 23 and SUMMARY in done.stderr
    done = run("leaves", {"REACHSCAN_AT_EXIT": "1", "REACHSCAN_EXITCODE": "77"})
    assert done.returncode == 77
    assert run("leaves").returncode == 0
    assert run("clean", {"REACHSCAN_AT_EXIT": "1"}).returncode == 0


def test_nothing_is_left_of_main_when_it_has_returned() -> None:
    done = run("returns", {"REACHSCAN_AT_EXIT": "1"})
    assert done.returncode == 23 and "in 64 allocations unreachable out of" in done.stderr


def test_a_check_before_the_exit_keeps_what_was_printed() -> None:
    done = run("leaves_by_call")
    assert (done.returncode, done.stdout) == (23, "text that waits in a buffer\n")
    assert done.stderr.count(SUMMARY) == 1


def test_options_in_the_environment() -> None:
    options = {"REACHSCAN_AT_EXIT": "1", "REACHSCAN_OPTIONS": "--limit 0 --method copy"}
    done = run("leaves", options)
    assert done.returncode == 23 and "unreachable at" not in done.stderr
    options["REACHSCAN_OPTIONS"] = "--contents 0"
    done = run("leaves", options)
    assert "unreachable at" in done.stderr and "contents" not in done.stderr
    options["REACHSCAN_OPTIONS"] = "--colour --limit many"
    said = run("leaves", options).stderr
    assert "REACHSCAN_OPTIONS: '--colour' is not understood" in said
    assert "REACHSCAN_OPTIONS: 'many' is not understood" in said


@pytest.mark.parametrize("place", ["/nonexistent/report", "/dev/full"])
def test_a_report_that_cannot_be_written_goes_to_stderr(place: str) -> None:
    done = run("leaves", {"REACHSCAN_AT_EXIT": "1", "REACHSCAN_REPORT": place})
    assert done.returncode == 23 and SUMMARY in done.stderr
    assert (f"'{place}' cannot be written" in done.stderr) == (place != "/dev/full")


def test_a_switch_that_is_not_understood() -> None:
    done = run("leaves", {"REACHSCAN_AT_EXIT": "yes"})
    assert done.returncode == 0
    assert "REACHSCAN_AT_EXIT: 'yes' is neither 0 nor 1" in done.stderr


def reports_of(victim: Victim, folder: Path, count: int) -> str:
    path = folder / f"report.{victim.pid}"
    wait_until(lambda: path.exists() and path.read_text().count(SUMMARY) == count, "it reports")
    return path.read_text()


def test_a_signal_asks_for_a_report(tmp_path: Path) -> None:
    environment = {"REACHSCAN_SIGNAL": "USR2", "REACHSCAN_REPORT": str(tmp_path / "report.%p")}
    with running([inside(), "waits"], environment) as victim:
        for count in (1, 2):
            os.kill(victim.pid, signal.SIGUSR2)
            reports_of(victim, tmp_path, count)
