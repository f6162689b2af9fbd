"""Whatever is asked of it, reachscan answers in one line, with the right status, and cleans up."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import FAILED, Finished, assert_let_go, relatives, run_cli, scan
from victims import REPOSITORY, build, traced
from worlds import CLI_AS_USER, NOBODY

USAGE = 2
PF_KTHREAD = 0x00200000


def assert_refused(done: Finished, *words: str, status: int = FAILED) -> None:
    assert done.status == status, f"status {done.status}: {done.talk}"
    assert "Traceback" not in done.talk
    assert done.talk.count("\n") == 1, f"not one line: {done.talk!r}"
    for word in words:
        assert word in done.talk


@pytest.fixture(autouse=True)
def no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test ends with an empty directory for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan"],
        ["scan", "1", "--method", "guess"],
        ["scan", "1", "--threads", "0"],
        ["scan", "1", "--timeout", "-1"],
        ["scan", "1", "--nonsense"],
        ["scan", "1", "--json", "--format", "text"],
        ["report"],
    ],
)
def test_bad_usage(arguments: list[str]) -> None:
    done = run_cli(arguments)
    assert done.status == USAGE
    assert done.out == "" and "Traceback" not in done.talk and done.talk


def test_no_such_pid() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert_refused(run_cli([child.pid]), str(child.pid))
    assert_refused(run_cli([2**31]), str(2**31))


def test_no_such_name() -> None:
    assert_refused(run_cli(["no-program-is-called-this"]), "no-program-is-called-this")


@pytest.fixture
def own_name(tmp_path: Path) -> Path:
    """A copy of a fixture program whose name nobody else's process has."""
    program = tmp_path / f"rs{os.getpid()}"
    program.write_bytes(build("never_mallocs").read_bytes())
    program.chmod(0o755)
    return program


def test_name_of_one_process(victim: StartVictim, own_name: Path) -> None:
    victim("never_mallocs", command=[str(own_name)])
    assert run_cli([own_name.name]).status == 0


def test_ambiguous_name(victim: StartVictim, own_name: Path) -> None:
    pids = sorted(victim("never_mallocs", command=[str(own_name)]).pid for _ in range(2))
    done = run_cli([own_name.name])
    sentence, heading, *rows = done.talk.splitlines()
    assert done.status == 3
    assert "--all-processes" in sentence
    assert heading.split() == ["PID", "PARENT", "MEMORY", "COMMAND"]
    assert [row.split()[:2] for row in rows] == [[str(pid), str(os.getpid())] for pid in pids]


def test_each_process_of_a_name(victim: StartVictim, own_name: Path) -> None:
    pids = sorted(victim("never_mallocs", command=[str(own_name)]).pid for _ in range(2))
    done = run_cli([own_name.name, "--all-processes", "--format", "logfmt"])
    assert done.status == 0
    pid = re.compile(r" pid=(\d+) ")
    assert [int(found[1]) for found in map(pid.search, done.out.splitlines()) if found] == pids
    assert run_cli([own_name.name, "--all-processes", "--save", "x.rsc"]).status == 2


def test_kernel_thread() -> None:
    stat = Path("/proc/2/stat")
    if not stat.exists():
        pytest.skip("no kernel threads are visible in this container")
    if not int(stat.read_text().rpartition(")")[2].split()[6]) & PF_KTHREAD:
        pytest.skip("process 2 is an ordinary process in this container")
    assert_refused(run_cli([2]), "kernel thread")


def test_zombie() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert_refused(run_cli([child.pid]), str(child.pid), "exited")
    finally:
        child.wait()


def test_already_traced(victim: StartVictim, truth: Path) -> None:
    target = victim("leak_graph", truth, 100, 10)
    with traced(target.pid):
        assert_refused(run_cli([target.pid]), "traced", str(os.getpid()))
        # This method needs no tracing at all.
        assert run_cli([target.pid, "--method", "live"]).status == 1


def test_a_scan_that_does_not_let_go(victim: StartVictim, truth: Path) -> None:
    """Another scan is waited for, as long as that may take; it is known by its name."""
    target = victim("leak_graph", truth, 100, 10)
    name = Path("/proc/self/comm")
    own = name.read_text()
    with traced(target.pid):
        name.write_text("reachscan-helper")
        try:
            done = run_cli([target.pid, "--timeout", 1])
        finally:
            name.write_text(own)
    assert_refused(done, "another reachscan", str(os.getpid()), "does not let go")


def test_not_permitted(victim: StartVictim, truth: Path) -> None:
    if os.geteuid() != 0:
        assert_refused(run_cli([1]), "permitted")
        return
    target = victim("leak_graph", truth, 100, 10)
    command = [sys.executable, "-c", CLI_AS_USER, str(NOBODY), str(target.pid)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert_refused(Finished(done.returncode, done.stdout, done.stderr), "permitted", "root")


def test_another_malloc(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    """The library that provides it is named."""
    (tmp_path / "other.c").write_text("""
        #include <stddef.h>
        static char pool[1 << 26];
        static size_t used;
        void* malloc(size_t size) {
          void* block = pool + used;
          used += (size + 31) & ~15ul;
          return block;
        }
        void free(void* block) { (void)block; }
    """)
    library = tmp_path / "libother_malloc.so"
    command = ["gcc", "-shared", "-fPIC", "-fno-builtin", "-o", str(library), "other.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    target = victim("never_mallocs", environment={**os.environ, "LD_PRELOAD": str(library)})
    for method in ("clone", "copy", "live"):
        assert_refused(run_cli([target.pid, "--method", method]), str(library), "malloc")


@pytest.mark.parametrize("flags", [[], ["-static"]])
def test_unused_allocator(victim: StartVictim, flags: list[str]) -> None:
    target = victim("never_mallocs", command=[str(build("never_mallocs", flags))])
    report = scan(target.pid)
    assert report["leaks"]["allocations"] == 0
    if not flags:  # a static program's start-up code may allocate
        assert report["heap"]["allocations"] == 0


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_no_memory_to_speak_of(victim: StartVictim, method: str) -> None:
    """Where nothing was ever mapped, nothing is lost."""
    target = victim("bare", command=[str(build("bare", ["-nostdlib", "-static"]))])
    assert scan(target.pid, "--method", method)["heap"]["allocations"] == 0


def assert_answered(done: Finished) -> None:
    if done.status not in (0, 1):
        assert_refused(done)


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_target_exits_during_the_scan(victim: StartVictim, method: str) -> None:
    for number in range(12):
        target = victim("goes_away", "exit")
        command = [sys.executable, "-m", "reachscan", str(target.pid), "--method", method]
        with subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:  # lets it come a little further each time
                out, talk = process.communicate(timeout=0.1 + number * 0.05)
            except subprocess.TimeoutExpired:
                target.quit()
                out, talk = process.communicate()
        assert_answered(Finished(process.returncode, out, talk))


def test_target_becomes_another_program(victim: StartVictim) -> None:
    target = victim("goes_away", "exec")
    for _ in range(12):
        assert_answered(run_cli([target.pid]))
    assert_let_go(target.pid, relatives(target.pid))


def test_target_becomes_another_program_between_looks(victim: StartVictim) -> None:
    """`live` looks several times, which must not be at different programs."""
    target = victim("goes_away", "exec-once")
    command = [sys.executable, "-m", "reachscan", str(target.pid), "--method", "live", "-v"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None and target.process.stdin is not None
        assert any(line.strip() == "mark" for line in process.stderr), "it did not look once"
        target.process.stdin.write(b"x")
        target.process.stdin.flush()
        talk = process.stderr.read()
    assert process.returncode == FAILED, talk
    assert "started another program during the scan" in talk


def test_timeout(victim: StartVictim, truth: Path) -> None:
    target = victim("leak_graph", truth, 500_000, 10)
    before = relatives(target.pid)
    assert_refused(run_cli([target.pid, "--timeout", "0.001"]))
    assert_let_go(target.pid, before)


def test_disk_full(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    target = victim("leak_graph", truth, 50_000, 50)
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        done = run_cli([target.pid, "--save", small / "scan.rsc"])
        assert_refused(done, "scan.rsc")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("option", ["--save", "-o"])
def test_device_full(victim: StartVictim, truth: Path, option: str) -> None:
    target = victim("leak_graph", truth, 1000, 50)
    assert_refused(run_cli([target.pid, option, "/dev/full"]), "/dev/full")


@pytest.fixture
def saved(victim: StartVictim, truth: Path, tmp_path: Path) -> Path:
    target = victim("leak_graph", truth, 1000, 20)
    assert run_cli([target.pid, "--save", tmp_path / "whole.rsc"]).status == 1
    return tmp_path / "whole.rsc"


def test_truncated_stream(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for length in (0, 5, 16, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        cut = tmp_path / "cut.rsc"
        cut.write_bytes(whole[:length])
        assert_refused(run_cli(["report", cut]))


def test_foreign_files(saved: Path, tmp_path: Path) -> None:
    newer = bytearray(saved.read_bytes())
    newer[8] = 99
    (tmp_path / "newer.rsc").write_bytes(newer)
    assert_refused(run_cli(["report", tmp_path / "newer.rsc"]), "version")
    assert_refused(run_cli(["report", sys.executable]))
    for path, why in ((tmp_path, "is a directory"), (tmp_path / "nothing.rsc", "does not exist")):
        done = run_cli(["report", path])
        assert done.status == USAGE
        assert f"{str(path)!r} {why}" in done.talk


def test_helper_missing(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    target = victim("leak_graph", truth, 100, 10)
    missing = str(tmp_path / "nowhere")
    assert_refused(run_cli([target.pid], {"REACHSCAN_HELPER": missing}), missing)


def test_helper_killed(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    target = victim("leak_graph", truth, 100, 10)
    script = tmp_path / "helper"
    script.write_text("#!/bin/sh\nkill -KILL $$\n")
    script.chmod(0o755)
    name = signal.Signals(signal.SIGKILL).name
    assert_refused(run_cli([target.pid], {"REACHSCAN_HELPER": str(script)}), name)
