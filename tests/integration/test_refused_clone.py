"""Targets that cannot or must not be cloned: served otherwise or refused, never harmed."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conftest import StartVictim
from groups import control_group, limit_memory, moved
from older_kernels import recording_before_6_7
from scans import (
    FAILED,
    PATIENCE,
    PATIENTLY,
    assert_served_by_copy,
    recording_of,
    relatives,
    run_cli,
    scan,
)
from unharmed import TRIES, Ending, Helper, Watched, assert_sound, children, last_words
from victims import build, need, thread_states, wait_until
from worlds import NOBODY, as_user, need_root, public_copy

from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

LEAKS = 50
MOMENTS = 10
PR_SET_CHILD_SUBREAPER = 36
CHECKER_THREADS = 5
MEGABYTE = 1 << 20
MOST_STOPPED_SECONDS = 2.0


@need_root
@pytest.mark.parametrize("spare", [0, 1], ids=["first", "second"])
def test_process_limit(victim: StartVictim, spare: int) -> None:
    """The user may have no process more; or one, but the clone takes two for a moment."""
    with public_copy(build("checker")) as program:
        limit = [need("prlimit", "util-linux"), f"--nproc={CHECKER_THREADS + spare}"]
        victim_process = victim("checker", command=as_user(NOBODY, *limit, str(program)))
        assert_served_by_copy(victim_process.pid, "Resource temporarily unavailable")
        assert_sound(last_words(victim_process))


@need_root
@pytest.mark.parametrize("spare", [0, 1], ids=["first", "second"])
def test_process_count_of_a_control_group(victim: StartVictim, spare: int) -> None:
    victim_process = victim("checker")
    pid = victim_process.pid
    with control_group("pids") as group, moved(pid, group):
        current = int((group / "pids.current").read_text())
        (group / "pids.max").write_text(str(current + spare))
        assert_served_by_copy(pid, "Resource temporarily unavailable")
        assert_sound(last_words(victim_process))


@need_root
@pytest.mark.parametrize("room", [64 << 10, 256 << 10, MEGABYTE])
def test_memory_of_a_control_group(victim: StartVictim, truth: Path, room: int) -> None:
    """A clone's memory counts as the target's: if it ran out, the target would be killed."""
    target = victim("leak_graph", truth, 50_000, LEAKS)
    with control_group("memory") as group, moved(target.pid, group):
        limit_memory(group, room)
        done = run_cli([target.pid, "--json"])
        assert target.process.poll() is None, "the target was killed"
        assert done.status == 1, done.talk
        assert json.loads(done.out)["snapshot"]["method"] == "copy"
        limit_memory(group, 1 << 40)
        target.quit()


def test_a_clone_that_is_killed(victim: StartVictim, truth: Path, tmp_path: Path) -> None:
    """As the kernel does when memory runs out: another method serves if nothing was told yet."""
    target = victim("leak_graph", truth, 1_000_000, LEAKS)
    helper = Helper(tmp_path)
    for _ in range(3 * TRIES):
        ending = scan_and_kill_clone(helper, target.pid, "--threads", 1, "--nice", 19)
        assert ending.status == 0 or ending.code == "no-memory", ending
        if ending.method == "copy":
            break
    assert ending.method == "copy", "the clone was always killed too late"


def test_a_clone_of_two_threads_that_is_killed(
    victim: StartVictim, truth: Path, tmp_path: Path
) -> None:
    """The kernel does not tell of the first one's end until the other one is waited for."""
    target = victim("leak_graph", truth, 1_000_000, LEAKS)
    ending = scan_and_kill_clone(Helper(tmp_path), target.pid, "--method", "clone", "--threads", 2)
    assert ending.status == 0 or ending.code in ("clone-refused", "no-memory", "timeout"), ending


def scan_and_kill_clone(helper: Helper, pid: int, *options: object) -> Ending:
    with ThreadPoolExecutor() as pool:
        scan_ = pool.submit(helper.run, pid, *options)
        wait_until(lambda: bool(relatives(pid)) or scan_.done(), "there is a clone")
        for clone in relatives(pid):
            with suppress(ProcessLookupError):
                os.kill(clone, signal.SIGKILL)
        return scan_.result()


@pytest.mark.parametrize("room", [0, 64 << 10, MEGABYTE])
def test_address_space_limit(victim: StartVictim, tmp_path: Path, room: int) -> None:
    victim_process = victim("checker")
    target = Watched(victim_process.pid, Helper(tmp_path))
    status = Path(f"/proc/{target.pid}/status").read_text().split("VmSize:")[1]
    limit = (int(status.split()[0]) << 10) + room
    resource.prlimit(target.pid, resource.RLIMIT_AS, (limit, limit))
    done = run_cli([target.pid])
    print(f"status {done.status}: {done.talk}")
    assert done.status in (0, 1, FAILED), done.talk
    target.assert_unharmed()
    assert_sound(last_words(victim_process))


@pytest.mark.parametrize("kind", ["dontfork", "wipeonfork"])
def test_heap_that_forks_do_not_get(victim: StartVictim, kind: str) -> None:
    target = victim("odd_heap", kind, LEAKS)
    report = scan(target.pid)
    print(f"{kind}: {report['snapshot']['method']}")
    assert report["leaks"]["allocations"] == LEAKS


@pytest.mark.parametrize("kind", ["dontfork", "wipeonfork"])
def test_heap_that_forks_do_not_get_on_an_older_kernel(victim: StartVictim, kind: str) -> None:
    target = victim("odd_heap", kind, LEAKS)
    recording = recording_before_6_7(target.pid, "--method", "clone")
    assert len(recording.leaks.address) == LEAKS


def certain(recording: model.Recording) -> int:
    return int((recording.leaks.reason == model.DEFINITE).sum())


def test_memory_that_forks_do_not_get_and_that_was_just_mapped(victim: StartVictim) -> None:
    """What is listed before the pause is out of date by then."""
    target = victim("moving_table", LEAKS)
    for record in (recording_of, recording_before_6_7):
        for _ in range(MOMENTS):
            assert certain(record(target.pid, "--method", "clone", *PATIENTLY)) == LEAKS


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Let orphans of our descendants become our children, whom we do not collect until the end."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = children(os.getpid())
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        for child in children(os.getpid()) - before:
            os.waitpid(child, 0)


def test_nobody_collects_orphans(victim: StartVictim, truth: Path) -> None:
    """Each clone leaves a zombie, until one has been there for so long that it is noticed."""
    target = victim("leak_graph", truth, 100, 10)
    snapshots = [scan(target.pid)["snapshot"]]
    with adopting_orphans():
        before = children(os.getpid())

        def served_by_copy() -> bool:
            snapshots.append(scan(target.pid)["snapshot"])
            return bool(snapshots[-1]["method"] == "copy")

        wait_until(served_by_copy, "a zombie is noticed", PATIENCE)
        left = len(children(os.getpid()) - before)
    assert [snapshot["method"] for snapshot in snapshots[:2]] == ["clone", "clone"]
    assert left == len(snapshots) - 2
    assert "zombie" in snapshots[-1]["reason"]


@contextmanager
def strict_overcommit(limit: int) -> Iterator[None]:
    """Let the kernel promise no more than that many bytes, to all processes together."""
    settings = [Path("/proc/sys/vm") / f"overcommit_{name}" for name in ("ratio", "memory")]
    before = [setting.read_text() for setting in settings]
    try:
        Path("/proc/sys/vm/overcommit_kbytes").write_text(str(limit >> 10))
        settings[1].write_text("2")
        yield
    finally:
        for setting, value in zip_equal(settings, before):
            setting.write_text(value)


@need_root
@pytest.mark.skipif(
    os.environ.get("REACHSCAN_STRICT_OVERCOMMIT") != "1",
    reason="changes how this machine overcommits, for a moment: REACHSCAN_STRICT_OVERCOMMIT=1",
)
def test_strict_overcommit(victim: StartVictim, tmp_path: Path) -> None:
    """The limit is far beyond what other programs need, and half of it is the target's."""
    helper = Helper(tmp_path)
    with strict_overcommit(limit=110 << 40):
        target = victim("odd_heap", "promised", LEAKS)
        refused = helper.run(target.pid, "--method", "clone")
        served = helper.run(target.pid)
    assert (refused.code, served.status, served.method) == ("clone-refused", 0, "copy")
    assert "the kernel does not overcommit" in refused.sentence


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_vfork_in_progress(victim: StartVictim, tmp_path: Path, method: str) -> None:
    """The kernel does not let anyone stop a thread in vfork(): refused, and soon."""
    target = victim("waits_for_vfork")
    wait_for_uninterruptible(target.pid)
    helper = Helper(tmp_path)
    watched = Watched(target.pid, helper)
    began = time.monotonic()
    ending = helper.run(target.pid, "--method", method)
    took = time.monotonic() - began
    print(f"refused after {took:.2f} s: {ending.sentence}")
    assert ending.code == "unstoppable"
    assert took < MOST_STOPPED_SECONDS
    watched.assert_unharmed()
    done = run_cli([target.pid, "--method", method])
    assert done.status == FAILED and done.talk.count("\n") == 1, done.talk


def test_vfork_does_not_matter_to_live(victim: StartVictim, tmp_path: Path) -> None:
    target = victim("waits_for_vfork")
    wait_for_uninterruptible(target.pid)
    watched = Watched(target.pid, Helper(tmp_path))
    snapshot = scan(target.pid)["snapshot"]
    assert snapshot["method"] == "live" and snapshot["pause_us"] == 0
    assert "uninterruptible" in snapshot["reason"]
    watched.assert_unharmed()


def wait_for_uninterruptible(pid: int) -> None:
    wait_until(lambda: "D" in thread_states(pid), "a thread waits for its vfork()")
