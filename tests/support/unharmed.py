"""Runs the helper against a target, kills it if wanted, and looks for harm that it did."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scans import HELPER, PATIENCE, relatives
from victims import Victim, thread_states, wait_until

from reachscan import errors
from reachscan.recording import wire

RELEASE = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
TRACK = pytest.param(
    "track",
    marks=pytest.mark.skipif(RELEASE < (6, 7), reason="Linux before 6.7 cannot track writes"),
)
METHODS = ("clone", "copy", TRACK, "live")
TRIES = 10
LIVE_SHARE = 4
REAPING_SECONDS = 20.0
"""How long the end of a process may take to become visible on a busy machine."""


def times(method: str, scans: int) -> int:
    """Return how often to scan, if most methods are to do it so often.

    A live scan stops nobody, and waits for most of a second between its looks at the memory: fewer
    of them are as telling.
    """
    return max(scans // LIVE_SHARE, 2) if method == "live" else scans


@dataclass(frozen=True)
class Ending:
    """How a run of the helper ended.

    Attributes:
        status: its exit status, negative if it was killed.
        method: how memory was captured; empty if it did not come so far.
        code: which kind of failure it reported; empty if none.
        sentence: what it said about that.
        talk: what it wrote to stderr.
    """

    status: int
    method: str
    code: str
    sentence: str
    talk: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    @property
    def gave_up(self) -> bool:
        """It found no good moment; the next one may be better."""
        flooded = self.sentence == "every thread is about to receive a signal"
        return self.code in ("timeout", "allocator-busy", "pause-too-long") or flooded

    @property
    def calls(self) -> int:
        """How many calls of the kernel it counted (with --count-calls)."""
        return int(self.talk.split("calls ")[1].split()[0])


class Helper:
    """The helper under a path of its own, so that its processes can be told from all others."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "reachscan-helper"
        shutil.copy(HELPER, self.path)

    def command(self, pid: int, *options: object) -> list[str]:
        return [str(self.path), "--pid", str(pid), *map(str, options)]

    def run(self, pid: int, *options: object) -> Ending:
        done = subprocess.run(
            self.command(pid, *options), capture_output=True, timeout=PATIENCE, check=False
        )
        method, code, sentence = _end_of(done.stdout)
        return Ending(done.returncode, method, code, sentence, done.stderr.decode())

    def scan(self, pid: int, *options: object) -> Ending:
        """Run it until it succeeds: a busy machine or target may make it give up, in good order."""
        for _ in range(TRIES):
            ending = self.run(pid, *options)
            if not ending.gave_up:
                break
        assert ending.status == 0, ending
        return ending

    def kill_after(self, pid: int, seconds: float, *options: object) -> bool:
        """Run it and kill it after a while; True if it was still running then."""
        null = subprocess.DEVNULL
        with subprocess.Popen(self.command(pid, *options), stdout=null, stderr=null) as process:
            end = os.pidfd_open(process.pid)
            try:
                if not select.select([end], [], [], seconds)[0]:
                    process.kill()
            finally:
                os.close(end)
        return process.returncode == -signal.SIGKILL

    def processes(self) -> list[int]:
        """Return the processes that run this helper."""
        return [pid for pid in _processes() if _executable(pid) == str(self.path)]

    def write_stalling(self, path: Path, call: int) -> None:
        """Write a script that runs it until it stalls; not even the limit of the pause ends it."""
        options = f"--max-pause 60000 --stall-at-call {call}"
        path.write_text(f'#!/bin/sh\nexec {self.path} "$@" {options}\n')

    def stalls(self, user: subprocess.Popen[bytes] | subprocess.Popen[str]) -> bool:
        """Wait until it sleeps while it looks at a process; False if its user ended instead."""

        def stalled() -> bool:
            at_work = filter(_looks_at_process, self.processes())
            return any(set(thread_states(pid)) == {"S"} for pid in at_work)

        wait_until(lambda: stalled() or user.poll() is not None, "the helper sleeps")
        return user.poll() is None


def _end_of(stream: bytes) -> tuple[str, str, str]:
    method = ""
    try:
        for frame in wire.frames(io.BytesIO(stream)):
            if frame.type == wire.SNAPSHOT:
                method = wire.parse(frame).method
            if frame.type == wire.FAILURE:
                failure = wire.parse(frame)
                return method, failure.code, failure.sentence
    except errors.StreamError:
        return method, "", "the stream breaks off"
    return method, "", ""


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _looks_at_process(pid: int) -> bool:
    """Return whether a process of the helper does more than to prove that it can run."""
    try:
        return b"--pid" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")  # noqa: PTH115
    except OSError:
        return ""


class Watched:
    """A target whose surroundings were noted before anything was done to it."""

    def __init__(self, pid: int, helper: Helper) -> None:
        self.pid = pid
        self.helper = helper
        self._children = children(pid)
        self._relatives = relatives(pid)
        self._executable = _executable(pid)

    def assert_free(self) -> None:
        """Nothing holds a thread of it: none is stopped or traced."""
        assert self.held() == []

    def wait_until_free(self) -> None:
        """A helper elsewhere learns a moment later that its connection has ended."""
        wait_until(lambda: self.held() == [], "nothing holds it")

    def held(self) -> list[str]:
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            status = dict(_fields(task / "status"))
            if not status:  # a thread may end at any time
                continue
            if status["TracerPid"] != "0":
                found.append(f"thread {task.name} is still traced")
            if status["State"][0] in "tT":
                found.append(f"thread {task.name} was left stopped")
        return found

    def assert_alone(self) -> None:
        """No clone of it lives, no helper, and it has no child that it did not have before."""
        wait_until(lambda: self.leftovers() == [], "nothing is left", REAPING_SECONDS)

    def leftovers(self) -> list[str]:
        found = [f"child {pid}" for pid in children(self.pid) - self._children]
        found += [f"helper {pid}" for pid in self.helper.processes()]
        same = [pid for pid in _processes() if _executable(pid) == self._executable]
        if set(same) - self._relatives - {self.pid}:
            found += [f"clone {pid}" for pid in relatives(self.pid) - self._relatives]
        return found

    def assert_unharmed(self) -> None:
        self.assert_free()
        self.assert_alone()


def children(pid: int) -> set[int]:
    """Return the children of all threads of a process, zombies included."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found.update(map(int, (task / "children").read_text().split()))
        except OSError:
            continue
    return found


def _fields(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text("utf-8", "backslashreplace").splitlines()
    except OSError:
        return []
    return [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]


def layout(pid: int) -> list[str]:
    """Return the memory mappings, without what a running program may change by itself."""
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def open_files(pid: int) -> dict[str, str]:
    folder = Path(f"/proc/{pid}/fd")
    return {entry.name: str(entry.readlink()) for entry in folder.iterdir()}


def last_words(victim: Victim) -> dict[str, Any]:
    """Let a victim end and return the counters that it prints."""
    words: dict[str, Any] = json.loads(victim.quit())
    return words


def assert_sound(words: dict[str, Any], *, cut_short: int = 0) -> None:
    """Check the counters of the `checker` fixture; some calls may have been cut short."""
    assert {name: count for name, count in words["errors"].items() if count} == {}
    idle = [name for name in ("registers", "calls", "timers") if not words["rounds"][name]]
    assert idle == [], "it was not at work"
    assert words["cut_short"] <= cut_short


def assert_undisturbed(last_line: str, *, cut_short: int = 0) -> None:
    """Check the counters of the `transparent` fixture; each call may have been cut so often."""
    counters: dict[str, Any] = json.loads(last_line)
    often = {name: count for name, count in counters.pop("cut_short").items() if count > cut_short}
    assert often == {}
    assert counters.pop("register_rounds") > 0 and counters.pop("call_rounds") > 0
    assert {name: count for name, count in counters.items() if count} == {}
