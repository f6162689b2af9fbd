"""Starts programs that people run, as targets."""

from __future__ import annotations

import os
import pwd
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
