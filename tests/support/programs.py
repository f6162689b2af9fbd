"""Starts programs that people run, as targets."""

from __future__ import annotations

import fcntl
import os
import pwd
import select
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Process = subprocess.Popen[bytes]


def unprivileged() -> dict[str, Any]:
    """Return arguments of Popen: servers refuse to run as root, or drop it by themselves."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam("nobody")
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@contextmanager
def program(command: Sequence[object], **options: Any) -> Iterator[Process]:
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=options.pop("stdout", subprocess.DEVNULL),
        **options,
    )
    try:
        yield process
        assert process.poll() is None, "it did not survive the scan"
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def assert_says(process: Process, line: bytes) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line


def await_word(process: Process, word: bytes, seconds: float = 60.0) -> None:
    """Read the output until the word comes."""
    assert process.stdout is not None
    said, end = b"", time.monotonic() + seconds
    while word not in said:
        left = max(end - time.monotonic(), 0)
        readable, _, _ = select.select([process.stdout], [], [], left)
        assert readable, f"{process.args!r} did not say {word!r} in {seconds} s, but {said!r}"
        piece = os.read(process.stdout.fileno(), 1 << 16)
        assert piece, f"{process.args!r} ended after it said {said!r}"
        said = said[-len(word) :] + piece


def answers(address: Path | tuple[str, int], request: bytes, expected: bytes) -> bool:
    """Say whether a server that listens there answers so; it is asked but once."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family) as client:
        client.settimeout(30)
        try:
            client.connect(str(address) if isinstance(address, Path) else address)
        except OSError:
            return False
        client.sendall(request)
        said = b""
        while expected not in said:
            try:
                piece = client.recv(1 << 16)
            except OSError:
                return False
            if not piece:
                return False
            said += piece
        return True


def free_port() -> int:
    """Return a port of this host that nobody listened at just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def unread_bytes(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)
