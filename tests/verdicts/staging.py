"""Ways to bring programs to a halt in the middle of their work: at a terminal, or serving."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from idle_programs import Processes, Stage
from programs import answers, children, free_port, program, unprivileged, unread_bytes
from victims import need, thread_states, wait_blocked, wait_until

SECONDS = 45.0


@dataclass(frozen=True)
class Fed:
    """A program that works on what comes in by a pipe which nobody closes."""

    package: str
    command: tuple[str, ...]
    """`{folder}` stands for where it runs."""
    typed: bytes = b""
    said: bytes = b""
    """What must be in its output before it counts as having worked."""
    environment: tuple[tuple[str, str], ...] = ()

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        name, *arguments = (word.replace("{folder}", str(stage.folder)) for word in self.command)
        command = [*stage.prefix, need(name, self.package), *arguments]
        environment = {**os.environ, **dict(self.environment)}
        out = stage.folder / "out"
        with (
            out.open("wb") as file,
            program(
                command, cwd=stage.folder, stdout=file, stderr=file, env=environment
            ) as process,
        ):
            assert process.stdin is not None
            process.stdin.write(self.typed)
            process.stdin.flush()
            pipe = process.stdin.fileno()

            def worked() -> bool:
                assert process.poll() is None, f"{name} ended: {out.read_bytes()[-200:]!r}"
                idle = unread_bytes(pipe) == 0 and set(thread_states(process.pid)) == {"S"}
                return idle and self.said in out.read_bytes()

            wait_until(worked, f"{name} has worked", SECONDS)
            yield {Path(name).name: process.pid}


class Terminal:
    """The other side of a terminal: what a program shows is read all the time."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("4H", 30, 100, 0, 0))
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 1 << 16)
            except OSError:  # nobody has the other side open any more
                return
            self.shown += piece

    def type(self, keys: bytes, pid: int) -> None:
        """Return when the program has read them and waits for more."""
        os.write(self._ours, keys)
        end = time.monotonic() + SECONDS
        calm = 0
        while calm < 5:
            assert time.monotonic() < end, f"{keys!r} was not taken"
            # What arrives is passed on by a thread of the kernel.
            select.select([], [], [], 0.02)
            calm = calm + 1 if self._is_read() and set(thread_states(pid)) == {"S"} else 0

    def _is_read(self) -> bool:
        (count,) = struct.unpack("i", fcntl.ioctl(self.theirs, termios.FIONREAD, bytes(4)))
        return int(count) == 0

    def close(self) -> None:
        os.close(self.theirs)
        self._reader.join(5)
        os.close(self._ours)


@dataclass(frozen=True)
class Typed:
    """A program at a terminal of its own, and what is typed there."""

    package: str
    command: tuple[str, ...]
    keys: tuple[bytes, ...]
    files: tuple[tuple[str, str], ...] = ()
    ready: bytes = b""
    """What it shows before it takes keys."""
    worked: Callable[[Path], bool] = lambda folder: True
    """Says by what it left in its folder whether the work was done."""

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        for file, text in self.files:
            (stage.folder / file).write_text(text)
        name, *arguments = (word.replace("{folder}", str(stage.folder)) for word in self.command)
        path = need(name, self.package)
        environment = {**os.environ, "TERM": "xterm", "HOME": str(stage.folder), "SHELL": "/bin/sh"}
        environment |= {"LANG": "C.UTF-8", "LESSHISTFILE": "-"}
        terminal = Terminal()
        # A session of its own, of which this is the terminal.
        command = ["setsid", "--ctty", *stage.prefix, path, *arguments]
        process = subprocess.Popen(
            command,
            stdin=terminal.theirs,
            stdout=terminal.theirs,
            stderr=terminal.theirs,
            cwd=stage.folder,
            env=environment,
        )
        try:
            wait_until(
                lambda: terminal.shown != b"" and self.ready in terminal.shown,
                f"{name} shows {self.ready!r}",
                SECONDS,
            )
            for keys in (b"", *self.keys):
                assert process.poll() is None, f"{name} ended: {terminal.shown[-300:]!r}"
                terminal.type(keys, process.pid)
            wait_until(lambda: self.worked(stage.folder), f"{name} has worked", SECONDS)
            yield {Path(name).name: process.pid}
            assert process.poll() is None, "it did not survive the scan"
        finally:
            process.kill()
            process.wait()
            terminal.close()


@dataclass(frozen=True)
class Server:
    """A server, and what it is asked: `{folder}` and `{port}` stand for what is its own."""

    package: str
    command: tuple[str, ...]
    request: bytes
    expected: bytes
    files: tuple[tuple[str, str], ...] = ()
    times: int = 50
    drops_root: bool = False
    """It runs as another user from the start."""
    has_worker: bool = False
    """Its newest child is there to stay, and is looked at, too."""
    unix: bool = False
    """It listens at `{folder}/socket`, not at the port."""
    speaks_first: bool = False

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        folder, port = stage.folder, free_port()

        def filled(text: str) -> str:
            return text.replace("{folder}", str(folder)).replace("{port}", str(port))

        for file, text in self.files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(filled(text))
        name = self.command[0]
        command = [*stage.prefix, need(name, self.package), *map(filled, self.command[1:])]
        options = unprivileged() if self.drops_root else {}
        address = folder / "socket" if self.unix else ("127.0.0.1", port)
        with (folder / "log").open("wb") as log:
            options |= {"stdout": log, "stderr": log, "cwd": folder}
            with program(command, **options) as process:

                def served() -> bool:
                    assert process.poll() is None, (folder / "log").read_bytes()[-200:]
                    return answers(address, self.request, self.expected)

                wait_until(served, f"{name} answers", SECONDS)
                assert sum(served() for _ in range(self.times)) > self.times / 2
                processes = {Path(name).name: process.pid}
                if self.has_worker:
                    processes[f"{Path(name).name} worker"] = children(process.pid)[-1]
                for pid in processes.values():
                    wait_blocked(pid)
                yield processes
                assert served()


def dns_query(name: str) -> bytes:
    """Return a question for an address, as it is sent by TCP."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
    return struct.pack(">H", len(query)) + query
