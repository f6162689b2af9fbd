"""Pointers that only the kernel holds keep their blocks alive, or else make their leak doubtful."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from conftest import StartVictim
from scans import HELPER, recording_of
from unharmed import METHODS, Helper, Watched
from victims import Victim, build, need, thread_states, wait_blocked, wait_until
from worlds import must_work, need_root

from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.zip_equal import zip_equal

ENUMERATE = 4
CALLS_OF_THE_PAUSE = 64
VERDICTS = {model.DEFINITE: "leak", model.HELD_BY_KERNEL: "possible"}


def need_io_uring() -> None:
    """Skip the test if no program can make a ring here."""
    set_up, entries, parameters = 425, 1, ctypes.create_string_buffer(120)
    if ctypes.CDLL(None, use_errno=True).syscall(set_up, entries, parameters) < 0:
        pytest.skip(f"io_uring is switched off or not built in (errno {ctypes.get_errno()})")


def assert_verdicts(target: Victim, method: str) -> None:
    """Each block is called what the target says that it must be called; doubts come with why."""
    wait_blocked(
        target.pid
    )  # of a running thread, `live` does not know which of its stack is stale
    recording = recording_of(target.pid, "--method", method)
    leaks = recording.leaks
    said = {
        address: VERDICTS[reason]
        for address, reason in zip_equal(leaks.address.tolist(), leaks.reason.tolist())
    }
    scenes = {int(scene["address"], 16): scene["expected"] for scene in target.ready["scenes"]}
    assert {address: said.get(address, "live") for address in scenes} == scenes
    assert said.keys() <= scenes.keys()
    warnings = [warning.code for warning in recording.warnings]
    assert ("held-by-kernel" in warnings) == ("possible" in scenes.values())


REQUESTS = ["kept", "replaced", "reused", "polled", "worked", "repeated", "overflown"]
REQUESTS += ["closed", "idle"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scene", REQUESTS)
def test_requests_of_io_uring(victim: StartVictim, scene: str, method: str) -> None:
    need_io_uring()
    target = victim("ring_requests", scene)
    # The kernel's thread, too; and of a thread that runs, `live` takes the whole stack for in use.
    waiting = ["S", "S"] if scene == "worked" else ["S"]
    wait_until(lambda: thread_states(target.pid)[: len(waiting)] == waiting, "the threads wait")
    assert_verdicts(target, method)


@pytest.mark.parametrize("method", METHODS[:-1])
@pytest.mark.parametrize("scene", ["few", "read"])
def test_pipes_of_the_process(victim: StartVictim, scene: str, method: str) -> None:
    assert_verdicts(victim("pipe_pointers", scene), method)


@pytest.mark.parametrize("method", METHODS[:-1])
def test_pipes_that_hold_too_much(victim: StartVictim, method: str) -> None:
    """Which of them are read is left open."""
    recording = recording_of(victim("pipe_pointers", "full").pid, "--method", method)
    assert set(recording.leaks.reason.tolist()) == {model.HELD_BY_KERNEL}
    assert "held-by-kernel" in [warning.code for warning in recording.warnings]


def test_death_while_pipes_are_looked_at(victim: StartVictim, tmp_path: Path) -> None:
    """The target finds in them what it wrote; by the time it runs, nobody else has them open."""
    process = victim("pipe_pointers", "few")
    target = Watched(process.pid, Helper(tmp_path))
    died = 0
    for number in range(1, CALLS_OF_THE_PAUSE + 1):
        died += target.helper.run(target.pid, "--die-at-call", number).killed
        target.assert_unharmed()
    assert died > 0
    process.quit()


def test_pipes_are_left_alone_without_a_stop(victim: StartVictim) -> None:
    recording = recording_of(victim("pipe_pointers", "few").pid, "--method", "live")
    warnings = {warning.code: warning.message for warning in recording.warnings}
    assert "in pipes" in warnings["live-registers-unknown"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scene", ["waiting", "read", "foreign"])
@pytest.mark.parametrize("kind", ["stream", "datagram", "posix", "system_v"])
def test_queues_of_the_process(victim: StartVictim, kind: str, scene: str, method: str) -> None:
    """What waits there is not read; what another process has sent is no reason for doubt."""
    target = victim("queue_pointers", kind, scene)
    assert_verdicts(target, method)


@pytest.mark.parametrize("kind", ["stream", "posix", "system_v"])
def test_queues_that_the_process_has_read_before(victim: StartVictim, kind: str) -> None:
    assert_verdicts(victim("queue_pointers", kind, "again"), "clone")


@pytest.mark.parametrize("method", METHODS)
def test_a_byte_that_wakes_a_thread(victim: StartVictim, method: str) -> None:
    """It is shorter than a pointer."""
    assert_verdicts(victim("queue_pointers", "stream", "woken"), method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scene", ["notify", "silent"])
def test_notifications_about_messages(victim: StartVictim, scene: str, method: str) -> None:
    assert_verdicts(victim("queue_pointers", "posix", scene), method)


@need_root
@pytest.mark.parametrize("kind", ["stream", "posix", "system_v"])
def test_queues_in_other_namespaces(victim: StartVictim, kind: str) -> None:
    unshare = [need("unshare", "util-linux"), "--net", "--ipc"]
    must_work([*unshare, "true"], "a namespace")
    command = [*unshare, str(build("queue_pointers")), kind, "waiting"]
    assert_verdicts(victim("queue_pointers", command=command), "clone")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scene", ["in flight", "answered", "fetched"])
def test_asynchronous_requests(victim: StartVictim, scene: str, method: str) -> None:
    assert_verdicts(victim("pipe_pointers", scene), method)


def test_a_ring_that_goes_on_after_the_pause(victim: StartVictim) -> None:
    """The clone shares the ring with the target; what counts is what it held during the pause."""
    need_io_uring()
    target = victim("ring_requests", "later")
    with subprocess.Popen([HELPER, "--pid", str(target.pid)], stdout=subprocess.PIPE) as helper:
        assert helper.stdout is not None
        frames = []
        for frame in wire.frames(cast("BinaryIO", helper.stdout)):
            frames.append(frame)
            if frame.type == wire.PROGRESS and wire.parse(frame).phase == ENUMERATE:
                # It serves the sweeper, which now cannot begin to mark.
                helper.send_signal(signal.SIGSTOP)
                assert target.process.stdin is not None
                target.process.stdin.write(b"\n")
                target.process.stdin.flush()
                assert target.read_line() == "replaced"
                helper.send_signal(signal.SIGCONT)
    leaks = decode(iter(frames)).leaks
    expected = [scene["address"] for scene in target.ready["scenes"] if scene["expected"] == "leak"]
    assert sorted(map(hex, leaks.address.tolist())) == sorted(expected)
