"""A desktop of its own for each program: an X server without a screen, a message bus, a user."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import documents
from idle_programs import Processes, Stage
from programs import await_word, program, unprivileged
from provisions import provide_all, python_with
from victims import need, thread_states, wait_blocked, wait_until

BASE = "xvfb xdotool dbus openbox fonts-dejavu-core"
QUIET = 0.4
"""Seconds without work after which a program has done what it was asked for."""
LONGEST_WORK = 5.0
PATIENCE = 90.0
SLOWNESS = 10
"""Of a program that a checker runs."""


@dataclass(frozen=True)
class Desktop:
    """A program with windows: how it is started and what it is told to do.

    `{folder}` stands for its home, which has the documents. A step is a command of xdotool; or
    `window NAME`, which waits for a window whose name that pattern matches, and gives it the
    keyboard; or `run COMMAND`, for the shell.
    """

    packages: str
    command: str
    steps: tuple[str, ...]
    process: str = ""
    """The name of what is scanned if the command is only its parent."""
    is_manager: bool = False
    """It manages windows: nobody else does."""
    of_pypi: tuple[str, ...] = ()
    """What the interpreter of Python that runs it needs."""
    environment: tuple[tuple[str, str], ...] = ()

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        provide_all(f"{BASE} {self.packages}")
        documents.write_all(stage.folder)
        with session(stage.folder, not self.is_manager) as environment:
            first, *rest = shlex.split(self.command.replace("{folder}", str(stage.folder)))
            path = python_with(*self.of_pypi) if self.of_pypi else need(first, self.packages)
            command = [*stage.prefix, path, *rest]
            environment |= dict(self.environment)
            output = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            # An environment of Python may be where only its owner can read it.
            user = {} if self.of_pypi else unprivileged()
            quick = {"cwd": stage.folder, "env": environment, **output, **user}
            patience = PATIENCE * (SLOWNESS if stage.prefix else 1)
            with program(command, **quick) as process:
                for step in self.steps:
                    take(step, environment, patience)
                    await_quiet(self._find(process.pid, stage.folder))
                pid = self._find(process.pid, stage.folder)
                wait_blocked(pid)
                yield {Path(first).name: pid}

    def _find(self, started: int, home: Path) -> int:
        if not self.process:
            return started
        for pid in processes_of(home):
            with suppress(OSError):  # it may end just now
                if Path(f"/proc/{pid}/comm").read_text().strip() == self.process:
                    return pid
        raise AssertionError(f"there is no {self.process}")


@contextmanager
def session(home: Path, managed: bool) -> Iterator[dict[str, str]]:
    """Yield the environment of a user's desktop, and end at last whatever was started there."""
    run = home / "run"
    run.mkdir()
    if unprivileged():
        os.chown(run, unprivileged()["user"], unprivileged()["group"])
    run.chmod(0o700)
    environment = {"PATH": os.environ["PATH"] + ":/usr/games", "LANG": "C.UTF-8", "TERM": "xterm"}
    environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(run), "SHELL": "/bin/sh"}
    quiet = {"stderr": subprocess.DEVNULL, "env": environment, "cwd": home}
    server = ["Xvfb", "-displayfd", "1", "-ac", "-noreset", "-screen", "0", "1280x1024x24"]
    bus = ["dbus-daemon", "--session", "--nofork", "--print-address=1"]
    try:
        with ExitStack() as stack:
            x = stack.enter_context(program(server, stdout=subprocess.PIPE, **quiet))
            assert x.stdout is not None
            environment["DISPLAY"] = ":" + x.stdout.readline().decode().strip()
            own = {**quiet, **unprivileged()}
            daemon = stack.enter_context(program(bus, stdout=subprocess.PIPE, **own))
            assert daemon.stdout is not None
            environment["DBUS_SESSION_BUS_ADDRESS"] = daemon.stdout.readline().decode().strip()
            if managed:
                manager = ["openbox", "--startup", "echo up"]
                await_word(
                    stack.enter_context(program(manager, stdout=subprocess.PIPE, **own)), b"up"
                )
            yield environment
    finally:
        end_all_of(home)


def processes_of(home: Path) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end just now
            if f"HOME={home}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def end_all_of(home: Path) -> None:
    """End every process of this user: the bus starts some that belong to nobody."""
    for pid in processes_of(home):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def take(step: str, environment: dict[str, str], patience: float) -> None:
    kind, _, rest = step.partition(" ")
    words = ["xdotool", *shlex.split(step)]
    if kind == "window":
        words = ["xdotool", "search", "--sync", "--onlyvisible", "--name", rest]
        words += ["windowraise", "windowfocus"]
    elif kind == "run":
        words = ["sh", "-c", rest]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **unprivileged()}
    try:
        subprocess.run(
            words, env=environment, cwd=environment["HOME"], timeout=patience, check=True, **quiet
        )
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{step!r} took longer than {patience:.0f} s") from late


def await_quiet(pid: int) -> None:
    """Wait until a program has hardly worked for a while; what shows something moving never is."""
    tick = 1 / os.sysconf("SC_CLK_TCK")
    before, since = 0.0, time.monotonic()
    end = since + LONGEST_WORK

    def is_quiet() -> bool:
        nonlocal before, since
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used, now = (int(words[11]) + int(words[12])) * tick, time.monotonic()
        if used > before + 2 * tick or "R" in thread_states(pid):
            before, since = used, now
        return now - since > QUIET or now > end

    wait_until(is_quiet, f"{pid} is quiet")
