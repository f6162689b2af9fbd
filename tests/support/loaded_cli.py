"""Runs command lines in forks of a process that has loaded reachscan: scans take less than loading.

From there on everything is as in a process that was started for it. Run as a program, this is the
process that forks. Tests of the start itself, and those that need another environment, start
`python -m reachscan`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LARGEST_REQUEST = 1 << 20
DESCRIPTORS = 3


class LoadedCli:
    """A process that has loaded reachscan, and forks whenever a command line is to be run."""

    def __init__(self) -> None:
        self._requests, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(there.fileno())],
                cwd=REPOSITORY,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # as main() sets it
                stdin=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
            )

    def run(self, words: Sequence[str], seconds: float) -> tuple[int, str, str]:
        """Return the exit status, and what was written to stdout and stderr."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as talk:
            replies, there = socket.socketpair()
            with replies:
                with there:
                    request = json.dumps([list(words), dict(os.environ)]).encode()
                    files = [out.fileno(), talk.fileno(), there.fileno()]
                    socket.send_fds(self._requests, [request], files)
                status = _wait(replies, seconds)
            out.seek(0)
            talk.seek(0)
            return status, out.read(), talk.read()


def _wait(replies: socket.socket, seconds: float) -> int:
    lines = replies.makefile()
    process = int(lines.readline())
    try:
        replies.settimeout(seconds)
        return int(lines.readline())
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise


@functools.cache
def loaded_cli() -> LoadedCli:
    """Start it when it is first wanted; it ends when nobody can ask any more."""
    return LoadedCli()


def _load() -> None:
    import numpy.ma  # noqa: F401  # numpy loads it when it is first wanted

    import reachscan

    for module in pkgutil.walk_packages(reachscan.__path__, "reachscan."):
        if module.name not in ("reachscan.__main__", "reachscan.pytest_plugin"):
            with contextlib.suppress(ModuleNotFoundError):  # what another Python demangles with
                importlib.import_module(module.name)


def _wait_for_words(requests: socket.socket) -> list[str]:
    """Return in a new process, once for each command line; never return in this one."""
    while True:
        request, files, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, DESCRIPTORS)
        if not request:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            _fork_watched(socket.socket(fileno=files.pop()))
            for number, file in enumerate(files, start=1):
                os.dup2(file, number)
                os.close(file)
            words, environment = json.loads(request)
            os.environ.clear()
            os.environ.update(environment)
            return list(words)
        for file in files:
            os.close(file)


def _fork_watched(replies: socket.socket) -> None:
    """Return in a child, and tell its number and how it ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child != 0:
        replies.send(f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        replies.send(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    replies.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as with -m
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _load()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        sys.argv[1:] = _wait_for_words(asked)
    runpy.run_module("reachscan", run_name="__main__", alter_sys=True)
