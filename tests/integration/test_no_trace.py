"""Signals, job control, children, mappings, files: after a scan all is as if it had not been."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import PATIENCE
from unharmed import (
    METHODS,
    Helper,
    Watched,
    assert_sound,
    children,
    last_words,
    layout,
    open_files,
    times,
)
from victims import Victim, build, need, thread_states, wait_until

BLOCKS = 100_000  # a list of them fills a pipe
SCANS = 20
ROUNDS = 30
STOP_SIGNALS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN)


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["group"]], ids=["process", "group"])
@pytest.mark.parametrize("method", METHODS)
def test_each_signal_arrives_once(
    victim: StartVictim, helper: Helper, method: str, arguments: list[str]
) -> None:
    """Queued real-time signals and a timer of 1 ms; `group` ones reach clones as well."""
    victim_process = victim("signals", *arguments)
    target = Watched(victim_process.pid, helper)
    for _ in range(times(method, SCANS)):
        helper.scan(target.pid, "--method", method)
        target.assert_unharmed()
    words = last_words(victim_process)
    print(f"{method}: {words}")
    assert words["sent"] > 0 and words["ticks"] > 0
    wrong = {name: words[name] for name in ("lost", "doubled", "missing_ticks", "sigchld")}
    assert not any(wrong.values()), words


def all_threads(pid: int, letter: str) -> bool:
    return set(thread_states(pid)) == {letter}


def no_thread(pid: int, letter: str) -> bool:
    return letter not in thread_states(pid)


@pytest.mark.parametrize("method", METHODS)
def test_the_reader_is_woken_when_the_target_runs(
    victim: StartVictim, helper: Helper, truth: Path, method: str
) -> None:
    target = victim("leak_graph", truth, BLOCKS, 1)
    asleep, wake = os.pipe()
    command = helper.command(target.pid, "--method", method, "--list-heap", "--wake", wake)
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[wake]) as process:
        os.close(wake)
        assert select.select([asleep], [], [], PATIENCE)[0]
        assert process.poll() is None, "it did not wait for who reads"
        assert no_thread(target.pid, "t")
        assert process.stdout is not None
        process.stdout.close()
    os.close(asleep)


def news_of(pid: int) -> list[int]:
    """Return what the kernel told the parent since it last asked: stopped, continued."""
    news = []
    flags = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
    while (event := os.waitid(os.P_PID, pid, flags)) is not None:
        news.append(event.si_code)
    return news


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", STOP_SIGNALS, ids=lambda number: number.name)
def test_stopped_process_stays_stopped(
    victim: StartVictim, helper: Helper, method: str, number: signal.Signals
) -> None:
    victim_process = victim("checker")
    pid = victim_process.pid
    os.kill(pid, number)
    wait_until(lambda: all_threads(pid, "T"), "it has stopped")
    assert news_of(pid) == [os.CLD_STOPPED]
    for _ in range(times(method, SCANS)):
        helper.scan(pid, "--method", method)
        wait_until(lambda: all_threads(pid, "T"), "it is stopped again")
    assert news_of(pid) == [], "its parent was told something"
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: no_thread(pid, "T"), "it goes on")
    # The kernel lets epoll_wait() return EINTR after SIGSTOP and SIGCONT, scan or no scan.
    assert_sound(last_words(victim_process), cut_short=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stopped", [False, True], ids=["stop", "continue"])
def test_job_control_during_a_scan(
    victim: StartVictim, helper: Helper, method: str, stopped: bool
) -> None:
    """SIGSTOP and SIGCONT that come at a random moment of a scan have their effect."""
    victim_process = victim("checker")
    pid = victim_process.pid
    moments = random.Random(1)
    rounds = times(method, ROUNDS)
    for _ in range(rounds):
        if stopped:
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: all_threads(pid, "T"), "it has stopped")
        with subprocess.Popen(
            helper.command(pid, "--method", method), stdout=subprocess.DEVNULL
        ) as process:
            end = os.pidfd_open(process.pid)
            select.select([end], [], [], moments.uniform(0, 0.012))
            os.kill(pid, signal.SIGCONT if stopped else signal.SIGSTOP)
            os.close(end)
        if not stopped:
            wait_until(lambda: all_threads(pid, "T"), "it has stopped")
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: no_thread(pid, "T") and no_thread(pid, "t"), "it goes on")
    assert_sound(last_words(victim_process), cut_short=rounds)


def child_of(victim_process: Victim) -> int:
    (child,) = children(victim_process.pid)
    return child


def assert_no_orphan_came(victim_process: Victim, pid: int, helper: Helper) -> None:
    target = Watched(pid, helper)
    methods = set()
    for _ in range(SCANS):
        methods.add(helper.scan(pid).method)
        target.assert_unharmed()
    print(f"served by {methods}")
    words = last_words(victim_process)
    assert (words["sigchld"], words["foreign_children"]) == (0, 0)
    assert not any(words["cut_short"].values())


def test_first_process_of_a_namespace(victim: StartVictim, helper: Helper) -> None:
    """Orphans of a container become children of its first process."""
    options = ["--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [need("unshare", "util-linux"), *options, str(build("transparent"))]
    if subprocess.run([*command[:5], "true"], check=False).returncode != 0:
        pytest.skip("no PID namespace can be made here")
    victim_process = victim("transparent", command=command)
    assert_no_orphan_came(victim_process, child_of(victim_process), helper)


def test_subreaper(victim: StartVictim, helper: Helper) -> None:
    victim_process = victim("transparent", "subreaper")
    assert_no_orphan_came(victim_process, victim_process.pid, helper)


@pytest.mark.parametrize("method", METHODS)
def test_mappings_and_files_stay(victim: StartVictim, helper: Helper, method: str) -> None:
    victim_process = victim("crowd", "sleep", 20)
    pid = victim_process.pid
    before = layout(pid), open_files(pid)
    for _ in range(times(method, SCANS)):
        assert helper.scan(pid, "--method", method).method == method
    assert (layout(pid), open_files(pid)) == before
