"""A conversation with a shell on another machine: commands go in, bytes and a status come out.

The words are those of `there.sh`, which the shell reads first. One side is silent while the other
one speaks, so that no program there takes from the pipe what is meant for another.
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
"""A person may have to enter a password meanwhile."""

SILENCE_SECONDS = 120.0
"""A connection over which nothing comes for so long is taken for lost, except during a scan."""

_PIECE = 1 << 16
_LONGEST_ANSWER = 64 << 20
_LONGEST_STATUS = 16
_LONGEST_GREETING = 1 << 20
"""What login scripts print comes before the first answer."""


class Answer(NamedTuple):
    """What a command there has printed, and its status."""

    output: bytes
    status: int


class Shell:
    """A shell that runs elsewhere. To be closed.

    Attributes:
        greeting: what it has told of its machine.

    Raises:
        UnreachableError: there is none.
    """

    def __init__(self, command: Sequence[str], name: str, no_shell: str, *, verbose: bool) -> None:
        """Start it.

        Args:
            command: runs a shell there.
            name: of the place, for sentences.
            no_shell: what to do if there is none.
            verbose: let it talk on our stderr.
        """
        self._name, self._no_shell = name, no_shell
        self._said = os.fdopen(os.memfd_create("talk"), "w+b")
        self._mark = os.urandom(16).hex()
        self._pending = b""
        self._greeted = False
        self._process = self._start(command, self._said, verbose=verbose)
        try:
            script = resources.files(__package__).joinpath("there.sh").read_text("utf-8")
            # In two parts, so that what only repeats its input does not look like a shell.
            half = len(self._mark) // 2
            self.send(f"{script}main {self._mark[:half]} {self._mark[half:]}\n".encode())
            self.greeting = self.answer(CONNECT_SECONDS, _LONGEST_GREETING)
            self._greeted = True
        except BaseException:
            self.close()
            raise

    def ask(self, *words: object) -> Answer:
        """Return the answer to a command."""
        self.command(*words)
        return self.answer()

    def command(self, *words: object) -> None:
        """Give a command; the answer is then to be read.

        Raises:
            ConnectionLostError: nobody hears it.
        """
        self.send(f"{' '.join(map(str, words))}\n".encode(errors="surrogateescape"))

    def send(self, data: bytes, sent: Callable[[int], None] = lambda _: None) -> None:
        """Send bytes; `sent` is told how many have gone, now and then.

        Raises:
            ConnectionLostError: they are not taken.
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

    def answer(
        self, seconds: float | None = SILENCE_SECONDS, most: int = _LONGEST_ANSWER
    ) -> Answer:
        """Return what is left of the answer to the command before.

        Args:
            seconds: how long it may be silent; None for ever.
            most: bytes that it may have.

        Raises:
            ConnectionLostError: it does not come to its end.
            StreamError: it is too long.
        """
        output = Output(self, seconds)
        pieces, size = [], 0
        for piece in output:
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise errors.StreamError(f"{self._name} says more than it was asked", "")
        return Answer(b"".join(pieces), output.status)

    def pieces(self, seconds: float | None) -> Generator[bytes, None, int]:
        """Yield the answer to the command before as it comes; return its status."""
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
            # What could be the beginning of a mark stays.
            keep = at if at >= 0 else max(0, len(self._pending) - len(mark) + 1)
            if at >= 0 and len(self._pending) - at > len(mark) + _LONGEST_STATUS:
                raise errors.StreamError(f"{self._name} does not answer as it should", "")
            if keep:
                piece, self._pending = self._pending[:keep], self._pending[keep:]
                yield piece
            self._pending += self._read(seconds)

    def close(self) -> None:
        """End it; what it has started there ends, too, within some seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdout.close()
        self._process.stdin.close()
        helper.stop(self._process)
        self._said.close()

    def last_words(self) -> str:
        """Return the last line that was said on stderr."""
        return helper.last_line(self._said)

    def _start(
        self, command: Sequence[str], said: IO[bytes], *, verbose: bool
    ) -> subprocess.Popen[bytes]:
        try:
            # In our session: what starts the shell may ask for a password on the terminal.
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
        """Return the error that says how the conversation ended."""
        if not why:
            try:
                ended = f"`{shlex.join(self._process.args)}` ended"  # type: ignore[arg-type]
                status = self._process.wait(helper.LET_GO_SECONDS)
                why = self.last_words() or f"{ended} with status {status}"
            except subprocess.TimeoutExpired:
                why = self.last_words() or "it was closed from there"
        if self._greeted:
            return errors.ConnectionLostError(f"the connection to {self._name} was lost: {why}")
        return errors.UnreachableError(f"no shell answers at {self._name}: {why}", self._no_shell)


class Output:
    """The answer to a command, piece by piece; `status` is known when it has ended, else -1."""

    def __init__(self, shell: Shell, seconds: float | None) -> None:
        self.status = -1
        self._pieces = shell.pieces(seconds)

    def __iter__(self) -> Iterator[bytes]:
        self.status = yield from self._pieces
