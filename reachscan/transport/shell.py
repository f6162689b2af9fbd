"""A conversation with a shell on another machine: a command goes in, output and status come out.

The commands are those of `there.sh`, which the shell reads first. Only one side writes at a time,
so no program there can read input that is meant for another.
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from importlib import resources
from typing import IO, NamedTuple

from reachscan import errors
from reachscan.capture import helper

CONNECT_SECONDS = 120.0
"""Seconds for the first answer: a person may have to enter a password."""

SILENCE_SECONDS = 120.0
"""Seconds of silence after which a connection counts as lost, except during a scan."""

_PIECE = 1 << 16
_MAX_ANSWER = 64 << 20
_MAX_STATUS = 16
_MAX_GREETING = 1 << 20
"""Maximum output of login scripts, which precedes the first answer."""


class Answer(NamedTuple):
    """The output of a command there, and its status."""

    output: bytes
    status: int


class Shell:
    """A shell that runs elsewhere. Must be closed.

    Attributes:
        greeting: facts about its machine.

    Raises:
        UnreachableError: no shell answers.
    """

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        no_shell: str,
        *,
        timeout: float | None = None,
        verbose: bool,
    ) -> None:
        """Start it.

        Args:
            command: starts a shell there.
            name: name of the place, for messages.
            no_shell: what to do if no shell answers.
            timeout: seconds for the first answer, if less than usual.
            verbose: let it write to our stderr.
        """
        self._name, self._no_shell = name, no_shell
        self._said = os.fdopen(os.memfd_create("talk"), "w+b")
        self._mark = os.urandom(16).hex()
        self._pending = b""
        self._greeted = False
        self._process = self._start(command, self._said, verbose=verbose)
        try:
            script = resources.files(__package__).joinpath("there.sh").read_text("utf-8")
            # In two parts, so that a program that only echoes its input does not look like a shell.
            half = len(self._mark) // 2
            self.send(f"{script}main {self._mark[:half]} {self._mark[half:]}\n".encode())
            patience = min(timeout or CONNECT_SECONDS, CONNECT_SECONDS)
            self.greeting = self.answer(patience, _MAX_GREETING)
            self._greeted = True
        except BaseException:
            self.close()
            raise

    def ask(self, *words: object) -> Answer:
        """Run a command, and return its answer."""
        self.command(*words)
        return self.answer()

    def command(self, *words: object) -> None:
        """Send a command; the caller must then read the answer.

        Raises:
            ConnectionLostError: it cannot be sent.
        """
        self.send(f"{' '.join(map(str, words))}\n".encode(errors="surrogateescape"))

    def send(self, data: bytes, sent: Callable[[int], None] = lambda _: None) -> None:
        """Send bytes; `sent` is called now and then with the number sent.

        Raises:
            ConnectionLostError: they cannot be sent.
        """
        assert self._process.stdin is not None
        pipe = self._process.stdin.fileno()
        rest = memoryview(data)
        poll = select.poll()
        poll.register(pipe, select.POLLOUT)
        while rest:
            if not poll.poll(1000 * SILENCE_SECONDS):
                raise self._lost(f"it has taken nothing for {SILENCE_SECONDS:g} s")
            try:
                rest = rest[os.write(pipe, rest[:_PIECE]) :]
            except BrokenPipeError as error:
                raise self._lost() from error
            sent(len(data) - len(rest))

    def answer(self, seconds: float | None = SILENCE_SECONDS, most: int = _MAX_ANSWER) -> Answer:
        """Return the rest of the answer to the last command.

        Args:
            seconds: how long the shell may be silent; None for no limit.
            most: maximum number of bytes.

        Raises:
            ConnectionLostError: the answer breaks off.
            StreamError: the answer is too long.
        """
        output = Output(self, seconds)
        pieces, size = [], 0
        for piece in output:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise errors.StreamError(f"{self._name} sent more data than expected", "")
        return Answer(b"".join(pieces), output.status)

    def pieces(self, seconds: float | None) -> Generator[bytes, None, int]:
        """Yield the answer to the last command as it arrives; return its status."""
        mark = f"\n{self._mark} ".encode()
        while True:
            at = self._pending.find(mark)
            end = self._pending.find(b"\n", at + len(mark)) if at >= 0 else -1
            if end >= 0:
                before, status = self._pending[:at], self._pending[at + len(mark) : end]
                self._pending = self._pending[end + 1 :]
                if before:
                    yield before
                return int(status) if status.isdigit() else 1
            # Keep what could be the start of a mark.
            keep = at if at >= 0 else max(0, len(self._pending) - len(mark) + 1)
            if at >= 0 and len(self._pending) - at > len(mark) + _MAX_STATUS:
                raise errors.StreamError(f"{self._name} does not answer as it should", "")
            if keep:
                piece, self._pending = self._pending[:keep], self._pending[keep:]
                yield piece
            self._pending += self._read(seconds)

    def close(self) -> None:
        """Close the connection; programs that the shell started there exit within some seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdout.close()
        self._process.stdin.close()
        helper.stop(self._process)
        self._said.close()

    def last_words(self) -> str:
        """Return the last line that was written to stderr."""
        return helper.last_line(self._said)

    def _start(
        self, command: Sequence[str], said: IO[bytes], *, verbose: bool
    ) -> subprocess.Popen[bytes]:
        try:
            # In our session: the program that starts the shell may ask for a password.
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if verbose else said,
                bufsize=0,
            )
        except OSError as error:
            said.close()
            raise errors.UnreachableError(
                f"cannot start {command[0]}: {error.strerror}",
                f"install {command[0]}, which is what reaches {self._name}",
            ) from error
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _read(self, seconds: float | None) -> bytes:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        begin = time.monotonic()
        if not poll.poll(None if seconds is None else 1000 * seconds):
            raise self._lost(f"it has been silent for {time.monotonic() - begin:.0f} s")
        piece = os.read(pipe, _PIECE)
        if not piece:
            raise self._lost()
        return piece

    def _lost(self, why: str = "") -> errors.ReachscanError:
        """Return the error that describes how the conversation ended."""
        if not why:
            try:
                ended = f"`{shlex.join(self._process.args)}` ended"  # type: ignore[arg-type]
                status = self._process.wait(helper.RELEASE_SECONDS)
                why = self.last_words() or f"{ended} with status {status}"
            except subprocess.TimeoutExpired:
                why = self.last_words() or "it was closed from there"
        if self._greeted:
            return errors.ConnectionLostError(f"the connection to {self._name} was lost: {why}")
        return errors.UnreachableError(f"no shell answers at {self._name}: {why}", self._no_shell)


class Output:
    """The answer to a command, piece by piece; `status` is -1 until it is complete."""

    def __init__(self, shell: Shell, seconds: float | None) -> None:
        self.status = -1
        self._pieces = shell.pieces(seconds)

    def __iter__(self) -> Iterator[bytes]:
        self.status = yield from self._pieces
