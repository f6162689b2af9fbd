"""Programs that are stopped at a moment of their start."""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import disguises
import numpy as np
from programs import Process, unprivileged
from scans import list_heap
from victims import PTRACE_DETACH, REPOSITORY, need, thread_states, wait_until

PTRACE_TRACEME = 0
FILES = {
    "Wait.java": (
        "class Wait { public static void main(String[] a) throws Exception { System.in.read(); } }"
    ),
    "nginx.conf": "daemon off; master_process off; pid {folder}/nginx.pid;\n"
    "error_log stderr; events {} http { access_log off;\n"
    "server { listen unix:{folder}/nginx.socket; } }\n",
    "mpd.conf": 'music_directory "{folder}"\ndb_file "{folder}/mpd.db"\n'
    'bind_to_address "{folder}/mpd.socket"\naudio_output { type "null" name "none" }\n',
}
"""What programs read, in the folder in which they start."""


class Starter(NamedTuple):
    """How a program is started.

    Attributes:
        package: the Debian package.
        arguments: its arguments; {folder} is where the files are.
        seconds: how long most of its start takes.
        by_root: whether root may run it.
    """

    package: str
    arguments: tuple[str, ...]
    seconds: float
    by_root: bool = True


STARTERS = {
    "/usr/bin/python3": Starter("python3", ("-c", "import decimal, ssl, sqlite3; input()"), 0.4),
    "perl": Starter("perl", ("-MPOSIX", "-MHash::Util", "-MIO::Socket", "-e", "<STDIN>"), 0.1),
    "node": Starter("nodejs", ("-e", "process.stdin.resume()"), 0.3),
    "ruby": Starter("ruby", ("-rjson", "-e", "gets"), 0.2),
    "java": Starter("default-jdk-headless", ("Wait.java",), 1.0),
    "git": Starter("git", ("-C", str(REPOSITORY), "cat-file", "--batch"), 0.02),
    "gdb": Starter("gdb", ("-q", "-nx", "/bin/sh"), 0.3),
    "vim": Starter("vim", ("-n", "-es", "/etc/passwd"), 0.1),
    "sqlite3": Starter("sqlite3", (), 0.02),
    "gnome-calculator": Starter("gnome-calculator", (), 1.5),
}
MORE_STARTERS = {
    sys.executable: Starter("python3-numpy", ("-c", "import numpy; input()"), 0.4),
    "redis-server": Starter(
        "redis-server",
        ("--port", "0", "--unixsocket", "{folder}/redis.socket", "--save", ""),
        0.1,
    ),
    "nginx": Starter("nginx-light", ("-p", "{folder}", "-c", "nginx.conf"), 0.05),
    "mpd": Starter("mpd", ("--no-daemon", "{folder}/mpd.conf"), 0.3),
    "postgres": Starter("postgresql", ("--single", "-D", "{folder}/data", "postgres"), 0.2, False),
}
ON_SCREEN = ("gnome-calculator",)


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.write_text(text.replace("{folder}", str(folder)))
        path.chmod(0o644)


@contextmanager
def started(name: str, folder: Path, environment: Mapping[str, str]) -> Iterator[Process]:
    """Start a program and let it run for a random part of its start; it is stopped then."""
    how = {**STARTERS, **MORE_STARTERS}[name]
    command = [
        need(name, how.package),
        *(word.replace("{folder}", str(folder)) for word in how.arguments),
    ]
    user = {} if how.by_root else unprivileged()
    with begun(command, cwd=folder, env=environment, **user) as process:
        # The loader's work is over soon: half of the moments are early ones.
        let_run(process, how.seconds * random.random() ** random.choice((1, 7)))
        yield process


@contextmanager
def begun(command: Sequence[object], **options: Any) -> Iterator[Process]:
    """Start a program, stopped at its first instruction."""
    libc = ctypes.CDLL(None)
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: libc.ptrace(PTRACE_TRACEME, 0, None, None),
        **options,
    ) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            stop = ctypes.c_void_p(signal.SIGSTOP)
            assert libc.ptrace(PTRACE_DETACH, process.pid, None, stop) == 0
            wait_stopped(process)
            yield process
        finally:
            process.kill()


def wait_stopped(process: Process) -> None:
    wait_until(lambda: is_stopped(process), "it is stopped")


def is_stopped(process: Process) -> bool:
    assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
    return set(thread_states(process.pid)) == {"T"}


def let_run(process: Process, seconds: float) -> None:
    """Let it go on for so long, or to its end if that comes first."""
    end = os.pidfd_open(process.pid)
    try:
        process.send_signal(signal.SIGCONT)
        select.select([end], [], [], seconds)
    finally:
        os.close(end)
    process.send_signal(signal.SIGSTOP)
    wait_stopped(process)


def pointed_at(pid: int, sizes: Mapping[int, int], definite: Sequence[int]) -> list[str]:
    """Return the definite leaks that an aligned word in use or a register points to.

    `sizes` are those of all leaks, by address.
    """
    if not definite:
        return []
    blocks = [(address, sizes[address]) for address in sorted(definite)]
    heap = list_heap(pid)
    live = np.stack([heap[:, 0], heap[:, 0] + heap[:, 1]], axis=1)
    pointers = disguises.look_for(pid, blocks, live).hits.get("pointer", {})

    def counts(at: int) -> bool:
        return at % 8 == 0 and not any(a <= at < a + size for a, size in sizes.items())

    return [
        f"{blocks[number][0]:#x}: {[hex(at) for at in hits if counts(at)]}"
        for number, hits in pointers.items()
        if any(map(counts, hits))
    ]
