"""Programs that a clone made without care would kill, damage or hold up."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import user_file_system
from conftest import StartVictim
from groups import control_group, limit_processor, membership, moved
from scans import PATIENCE, relatives, run_cli, scan
from unharmed import METHODS, TRACK, Helper, Watched, assert_sound, last_words, times
from victims import Victim, need, thread_states, wait_until
from worlds import must_work, need_root

LEAKS = 5
BLOCKS = 100_000  # a list of them fills a pipe
ROUNDS = 40
SCANS = 5
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root: a PID namespace, fork events")


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


def start_kind(victim: StartVictim, kind: str) -> Victim:
    return victim("hard_to_clone", kind, LEAKS)


KINDS = (
    "dispatched",
    "handled",
    pytest.param("namespace", marks=as_root),
    "compat",
    pytest.param("fork-events", marks=as_root),
)


@pytest.mark.parametrize("method", ["clone", TRACK])
@pytest.mark.parametrize("kind", KINDS)
def test_unfit_thread_is_left_alone(
    victim: StartVictim, helper: Helper, kind: str, method: str
) -> None:
    target = start_kind(victim, kind).ready["target"]
    watched = Watched(target, helper)
    ending = helper.run(target, "--method", method)
    print(f"{ending.code or 'served'}: {ending.sentence}")
    assert ending.code == "clone-refused"
    watched.assert_unharmed()


STATES = {
    "vdso": "can execute",
    "unaligned": "unaligned accesses",
    "segment": "kernel's half",
    "guarded": "used up its stack",
    "neighbour": "shares its memory",
    "counters": "performance counters",
    "stack-end": "",
    "sealed": "",
    "lease": "",
}
"""Kinds of the fixture, and words of the reason why they are not cloned; empty: they are."""


@pytest.fixture
def shared_file() -> Iterator[Path]:
    """A place for a file in memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "file"


def start_state(victim: StartVictim, kind: str, file: Path) -> int:
    target = victim("hard_to_enter", kind, LEAKS, file)
    if not target.ready["provided"]:
        pytest.skip(f"this machine does not provide {kind}")
    return target.pid


@pytest.mark.parametrize("kind", STATES)
def test_state_that_a_clone_would_harm(
    victim: StartVictim, helper: Helper, shared_file: Path, kind: str
) -> None:
    if kind in ("unaligned", "segment", "guarded", "stack-end") and os.uname().machine != "x86_64":
        pytest.skip("a state of x86-64")
    pid = start_state(victim, kind, shared_file)
    watched = Watched(pid, helper)
    report = scan(pid)
    snapshot = report["snapshot"]
    assert snapshot["method"] == ("copy" if STATES[kind] else "clone")
    assert STATES[kind] in str(snapshot)
    assert report["leaks"]["allocations"] == LEAKS
    watched.assert_unharmed()


@pytest.mark.parametrize("kind", KINDS)
def test_copy_serves_instead(victim: StartVictim, helper: Helper, kind: str) -> None:
    target = start_kind(victim, kind).ready["target"]
    watched = Watched(target, helper)
    assert helper.scan(target).method == "copy"
    watched.assert_unharmed()


@pytest.mark.parametrize("killed", [False, True], ids=["to the end", "helper killed"])
@pytest.mark.parametrize("method", METHODS)
def test_group_stopped_and_continued_alone(
    victim: StartVictim, helper: Helper, method: str, killed: bool
) -> None:
    """A stop signal also reaches the processes that the scan makes; SIGCONT only the target."""
    victim_process = victim("checker")
    pid = victim_process.pid
    watched = Watched(pid, helper)
    moments = random.Random(1)
    rounds = times(method, ROUNDS)
    for _ in range(rounds):
        with subprocess.Popen(
            helper.command(pid, "--method", method),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            end = os.pidfd_open(process.pid)
            select.select([end], [], [], moments.uniform(0, 0.006))
            os.killpg(pid, signal.SIGSTOP)
            if killed:
                process.kill()
            os.close(end)
        wait_until(lambda: set(thread_states(pid)) == {"T"}, "it has stopped")
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not {"T", "t"} & set(thread_states(pid)), "it goes on")
        watched.assert_unharmed()
    words = last_words(victim_process)
    print(words)
    if killed:
        # A middleman that the signal reaches in the very moment of the helper's death stops before
        # it ends, and the kernel tells its parent, whose sleep that interrupts.
        assert words["errors"].pop("sigchld") + words["errors"].pop("timers") < rounds
    assert_sound(words, cut_short=2 * rounds)


@contextmanager
def after_the_pause(helper: Helper, pid: int, method: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scan; inside the block the target runs again, and nobody reads what the scan found."""
    awake, wake = os.pipe()
    command = helper.command(pid, "--method", method, "--list-heap", "--wake", wake)
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[wake]) as process:
        os.close(wake)
        assert select.select([awake], [], [], PATIENCE)[0], "the target does not run again"
        os.close(awake)
        yield process
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def held_scan(helper: Helper, pid: int, method: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scan whose clone lives on after the pause, since its results fill the pipe."""
    with after_the_pause(helper, pid, method) as process:
        yield process
        assert process.poll() is None, "the scan did not last"


@pytest.mark.parametrize("method", METHODS)
def test_closed_while_scanned(
    victim: StartVictim, helper: Helper, tmp_path: Path, method: str
) -> None:
    """What the target closes is closed: its peer sees the end, its port is free."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reads = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    victim_process = victim("closes", fifo, BLOCKS)
    with held_scan(helper, victim_process.pid, method):
        tell_to_close(victim_process)
        assert select.select([reads], [], [], PATIENCE)[0] and os.read(reads, 1) == b""
        tell_to_close(victim_process)
        wait_until(lambda: is_free(victim_process.ready["port"]), "the port is free")
    os.close(reads)


@pytest.mark.parametrize("method", ["clone", "copy", "live"])
def test_who_serves_a_file_is_told_what_the_target_does(
    victim: StartVictim, helper: Helper, tmp_path: Path, method: str
) -> None:
    """No copy of a descriptor is closed by us, and none keeps the file open beyond its end."""
    folder = tmp_path / "served"
    folder.mkdir()
    with user_file_system.told(folder) as server:
        victim_process = victim("closes", folder / "file", BLOCKS)
        opened = server.count(user_file_system.FLUSH)  # by the program's start
        for _ in range(SCANS):
            assert helper.scan(victim_process.pid, "--method", method).method == method
        assert server.count(user_file_system.FLUSH) == opened
        with held_scan(helper, victim_process.pid, method):
            tell_to_close(victim_process)
            server.wait_for(user_file_system.RELEASE, 1)
        assert server.count(user_file_system.FLUSH) == opened + 1


def test_served_file_is_released_at_the_end(
    victim: StartVictim, helper: Helper, tmp_path: Path
) -> None:
    """The clone shares the table of a target that has such files open, and ends with it."""
    folder = tmp_path / "served"
    folder.mkdir()
    with user_file_system.told(folder) as server:
        victim_process = victim("closes", folder / "file", BLOCKS)
        with after_the_pause(helper, victim_process.pid, "clone"):
            victim_process.quit()
            server.wait_for(user_file_system.RELEASE, 1)


@pytest.mark.parametrize("method", ["clone", TRACK])
def test_lock_is_not_staked_on_the_clone(
    victim: StartVictim, helper: Helper, tmp_path: Path, method: str
) -> None:
    """Such locks belong to the descriptor table; one that is shared would lose them by exec()."""
    folder = tmp_path / "served"
    folder.mkdir()
    with user_file_system.told(folder):
        victim_process = victim("closes", folder / "file", BLOCKS, tmp_path / "locked")
        ending = helper.run(victim_process.pid, "--method", method)
        print(ending.sentence)
        assert ending.code in ("clone-refused", "unsupported-method")
        assert helper.scan(victim_process.pid).method == "copy"


def tell_to_close(victim_process: Victim) -> None:
    assert victim_process.process.stdin is not None
    victim_process.process.stdin.write(b"close\n")
    victim_process.process.stdin.flush()
    assert victim_process.read_line() == "closed"


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextmanager
def under_quota(pid: int) -> Iterator[Path]:
    with control_group("cpu") as group, moved(pid, group):
        limit_processor(group, 0.5)
        yield group


@need_root
def test_quota_of_processor_time(victim: StartVictim, helper: Helper, tmp_path: Path) -> None:
    """What the clone uses of processor time is charged to the scan's own control group."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reads = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    victim_process = victim("closes", fifo, BLOCKS)
    pid = victim_process.pid
    with under_quota(pid) as group, held_scan(helper, pid, "clone"):
        (clone,) = relatives(pid)
        wait_until(lambda: membership(clone, "cpu") == membership(os.getpid(), "cpu"), "it moved")
        assert membership(pid, "cpu").endswith(group.name)
        assert membership(clone, "memory") == membership(pid, "memory")
    os.close(reads)


@need_root
@pytest.mark.parametrize("shared", [False, True], ids=["its own", "shared"])
def test_quota_that_a_clone_cannot_leave(victim: StartVictim, shared: bool) -> None:
    """Then the report says so; unless the scan has the same quota anyway."""
    pid = victim("odd_heap", "plain", LEAKS).pid
    with under_quota(pid) as group:
        place = group if shared else group.parent
        join = f"echo $$ >{place}/cgroup.procs"
        script = f'{join} && mount -o remount,ro,bind {group.parent} && exec "$@"'
        prefix = [need("unshare", "util-linux"), "--mount", "sh", "-c", script, ""]
        must_work([*prefix, "true"], "a read-only view of control groups")
        report = json.loads(run_cli([pid, "--json"], prefix=prefix).out)
    warnings = {warning["code"]: warning["message"] for warning in report["warnings"]}
    assert report["snapshot"]["method"] == "clone"
    assert ("cpu-quota" in warnings) == (not shared), warnings
