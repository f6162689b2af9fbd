"""A jq that leaks on demand: `ltrimstr` on what is no string loses two blocks per record."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from victims import DEADLINE, need, wait_blocked


class GrowingJq:
    """A running jq 1.6 with its input in our hands."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def leak(self, records: int) -> None:
        """Have so many records lost, and return when jq waits for more."""
        assert self._process.stdin and self._process.stdout
        # Few at a time: jq must never wait for us to read what it has written.
        for _ in range(records):
            self._process.stdin.write(b"1\n")
            self._process.stdin.flush()
            assert self._process.stdout.readline() == b"1\n"
        wait_blocked(self.pid)

    def end(self) -> None:
        """Have it exit by itself."""
        assert self._process.stdin
        self._process.stdin.close()
        assert self._process.wait(DEADLINE) == 0


@contextmanager
def growing_jq() -> Iterator[GrowingJq]:
    """Start a jq; skip the test where it is another version, which does not leak."""
    jq = need("jq", "jq")
    version = subprocess.run([jq, "--version"], capture_output=True, text=True, check=True).stdout
    if version.strip() != "jq-1.6":
        pytest.skip(f"{Path(jq).name} is {version.strip()}; only 1.6 leaks this way")
    command = [jq, "--unbuffered", "-c", 'ltrimstr("x")']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield GrowingJq(process)
        finally:
            process.kill()
