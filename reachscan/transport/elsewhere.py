"""Scans processes of another machine: sends the helper there, and brings its stream back."""

from __future__ import annotations

import gzip
import io
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from reachscan import errors
from reachscan.capture import helper
from reachscan.recording import model, wire
from reachscan.transport import where
from reachscan.transport.processes import Processes
from reachscan.transport.shell import SILENCE_SECONDS, Output, Shell
from reachscan.wording import printable

if TYPE_CHECKING:
    from typing import TypeAlias

    from reachscan.capture.options import ScanOptions
    from reachscan.capture.place import Life
    from reachscan.capture.sysroot import Sysroot

Progressed: TypeAlias = "Callable[[model.Progress], None]"

_FOLDERS = ("/dev/shm", "/tmp", "/var/tmp", "/data/local/tmp")
"""Folders for the helper, in order of preference; memory first."""

_REFUSAL_REASONS = {1: "has no room", 2: "may not run programs"}
"""What each exit status of the command `put` means."""

_PIECE = 1 << 16
_SIGNALLED = 128
"""Added to the number of the signal that ended a program, in a shell's exit status."""


class _Facts(NamedTuple):
    """Facts about a machine: its processor, folders for files, and its compressor."""

    machine: str
    temporary: str
    home: str
    packing: str


class Elsewhere:
    """Processes that a shell can see. Must be closed.

    The connection is opened on first use, and again after it was lost.
    """

    def __init__(
        self,
        text: str,
        sysroot: str | Path | None,
        *,
        timeout: float | None = None,
        verbose: bool,
    ) -> None:
        """Prepare.

        Args:
            text: the place, as in `ssh:build7`.
            sysroot: folder with that machine's files; None to fetch them.
            timeout: seconds that a scan may take, and that connecting may take, too.
            verbose: let the shell, and the program that starts it, write to our stderr.

        Raises:
            WhereError: the text is not understood.
        """
        self._name = text
        self._where = where.parse(text)
        self._timeout, self._verbose = timeout, verbose
        self._sysroot = sysroot
        self._shell: Shell | None = None
        self._facts = _Facts("", "", "", "")
        self._has_helper = False

    def close(self) -> None:
        """Close the connection; nothing is left behind there."""
        if self._shell:
            self._shell.close()
        self._shell = None
        self._has_helper = False

    def interrupted(self) -> None:
        """Close the connection, which is opened again: the program that keeps it may be ending."""
        self.close()

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes there that a text names; see `processes.find`."""
        return self._processes().find(name)

    def resolve(self, name: str) -> int:
        """Return the id of the one process there that a text names; see `processes.resolve`."""
        return self._processes().resolve(name)

    def life(self, pid: int) -> Life:
        """Return the life of a process there, from now on."""
        return self._processes().life(pid)

    def check(self, pid: int) -> None:
        """Do nothing: the helper checks the process there."""

    @contextmanager
    def scan(
        self, pid: int, options: ScanOptions, on_progress: Progressed | None
    ) -> Iterator[Iterator[wire.Frame]]:
        """Run the helper there; inside the block, its records arrive as it writes them.

        Raises:
            ReachscanError: it cannot run there, or the connection was lost.
        """
        seconds = options.timeout and options.timeout + helper.GRACE_SECONDS
        try:
            with self._conversation() as shell:
                self._install_helper(shell, on_progress)
                words = self._tell(shell, options.lost_before)
                shell.command("run", self._facts.packing, *options.arguments(pid), *words)
                stream = _Stream(shell, seconds, self._facts.packing, on_progress)
                yield self._frames(stream, shell, options.timeout)
            if stream.output.status < 0:
                self.close()
        except errors.NotPermittedError as error:
            raise errors.NotPermittedError(error.sentence, self._where.rights) from error

    def sysroot(self, recording: model.Recording, on_progress: Progressed | None) -> Sysroot:
        """Return what fetches files: those that are needed are copied to a cache here."""
        if self._sysroot is not None:
            return self._sysroot
        from reachscan.naming import module_cache
        from reachscan.naming.owners import plain_path

        mappings = {plain_path(m.path): m for m in reversed(recording.mappings)}

        def fetch(path: str) -> Iterator[bytes]:
            if path not in mappings or "\n" in path:
                raise errors.StreamError("it is mapped from no file that can be asked for", "")
            return self._fetch(recording.target.pid, path, mappings[path], on_progress)

        return module_cache.ModuleCache(module_cache.default_folder(), fetch)

    def _fetch(
        self, pid: int, path: str, mapping: model.Mapping, on_progress: Progressed | None
    ) -> Iterator[bytes]:
        """Yield the contents of a mapped file, piece by piece.

        Raises:
            ReachscanError: it cannot be read, or the connection was lost.
        """
        with self._conversation() as shell:
            packing = self._facts.packing
            place = f"{mapping.start:x}-{mapping.end:x}"  # its name in /proc/PID/map_files
            shell.command("fetch", packing, pid, place, path)
            name = printable(PurePosixPath(path).name)
            stream = _Stream(shell, SILENCE_SECONDS, packing, on_progress, name)
            while piece := stream.read(_PIECE):
                yield piece
        if stream.output.status:
            raise errors.UnreachableError("its file cannot be read there", "")

    def _connected(self) -> Shell:
        if self._shell is None:
            self._shell = Shell(
                self._where.shell(),
                self._name,
                self._where.no_shell,
                timeout=self._timeout,
                verbose=self._verbose,
            )
            lines = self._shell.greeting.output.decode("utf-8", "surrogateescape").split("\n")
            if self._shell.greeting.status or len(lines) <= len(_Facts._fields):
                self.close()
                raise errors.UnreachableError(
                    f"the shell at {self._name} lacks something that reachscan needs: "
                    "/proc, /dev/null, head -c",
                    "copy reachscan-helper there, and run it by hand: docs/devices.md",
                )
            # Output of login scripts precedes it; the end of the last line follows.
            self._facts = _Facts(*lines[-len(_Facts._fields) - 1 : -1])
        return self._shell

    @contextmanager
    def _conversation(self) -> Iterator[Shell]:
        """Yield the shell; close it if the block is left early.

        This makes a running helper exit. Its remaining output would be taken for the next answer.
        """
        shell = self._connected()
        try:
            yield shell
        except BaseException:
            self.close()
            raise

    def _processes(self) -> Processes:
        return Processes(self._ask, self._name)

    def _ask(self, *words: object) -> bytes | None:
        """Return the output of a command there; None if it failed."""
        with self._conversation() as shell:
            answer = shell.ask(*words)
        return None if answer.status else answer.output

    def _install_helper(self, shell: Shell, on_progress: Progressed | None) -> None:
        """Make the helper for the machine's processor ready to run there."""
        if self._has_helper:
            return
        path = helper.executable(self._facts.machine)
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise errors.HelperUnavailableError(
                f"the native helper {path} cannot be read: {error.strerror}"
            ) from error
        packing = self._facts.packing
        self._put(shell, gzip.compress(data, 6) if packing == "gzip" else data, on_progress)
        self._has_helper = True

    def _put(self, shell: Shell, data: bytes, on_progress: Progressed | None) -> None:
        """Send the helper to the first folder that it can run from."""
        reasons = set()

        def sent(size: int) -> None:
            if on_progress:
                on_progress(model.Progress("send helper", size, len(data)))

        for folder in self._folders():
            if not self._make(shell, folder):
                reasons.add("may not write")
                continue
            shell.command("put", len(data), self._facts.packing)
            shell.send(data, sent)
            status = shell.answer().status
            if not status:
                return
            reasons.add(_REFUSAL_REASONS.get(status, "cannot be put"))
        raise errors.NoPlaceForHelperError(
            f"the helper finds no place at {self._name}: in {', '.join(self._folders())} "
            f"it {' or '.join(sorted(reasons))}"
        )

    def _tell(self, shell: Shell, before: bytes) -> list[str]:
        """Send what earlier scans found; return the helper's arguments for it."""
        if not before:
            return []
        for folder in self._folders():
            if not self._make(shell, folder):
                continue
            shell.command("tell", len(before))
            shell.send(before)
            if not shell.answer().status:
                return ["--lost-before", "/proc/self/fd/8"]
        raise errors.NoPlaceForHelperError(
            f"there is no room at {self._name} for what earlier scans found"
        )

    def _folders(self) -> list[str]:
        own = (self._facts.temporary, self._facts.home, ".")
        return list(dict.fromkeys(f for f in (*_FOLDERS, *own) if f and not set(f) & set(" \t\\")))

    def _make(self, shell: Shell, folder: str) -> bool:
        return not shell.ask("make", f"reachscan-{os.urandom(8).hex()}", folder).status

    def _frames(self, stream: _Stream, shell: Shell, timeout: float | None) -> Iterator[wire.Frame]:
        source = cast(BinaryIO, io.BufferedReader(stream))
        begin = time.monotonic()
        try:
            for frame in wire.frames(source):
                if timeout and time.monotonic() - begin > timeout and frame.type != wire.FAILURE:
                    raise errors.TimedOutError(f"the scan took longer than {timeout:g} s")
                yield frame
        except errors.StreamError as error:
            if stream.output.status <= 0:
                raise
            raise _broken_off(stream.output.status, shell.last_words()) from error


def _broken_off(status: int, last_words: str) -> errors.ReachscanError:
    said = f"; it said: {last_words}" if last_words else ""
    number = status - _SIGNALLED
    if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return errors.HelperKilledError(f"the helper there was killed by signal {number}{said}")
    return errors.InternalError(f"the helper there ended with status {status}{said}")


class _Stream(io.RawIOBase):
    """The decompressed output of a command there, as a file. It ends with the command's status."""

    def __init__(
        self,
        shell: Shell,
        seconds: float | None,
        packing: str,
        on_progress: Progressed | None,
        what: str = "receive",
    ) -> None:
        self.output = Output(shell, seconds)
        self._pieces = iter(self.output)
        self._unpacker = zlib.decompressobj(wbits=31) if packing == "gzip" else None
        self._ready = b""
        self._on_progress, self._what = on_progress, what
        self._received = 0

    def readable(self) -> bool:
        """Return that this is readable."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read what is available: at least one byte, except at the end."""
        while not self._ready:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._received += len(piece)
            if self._on_progress:
                self._on_progress(model.Progress(self._what, self._received, 0))
            try:
                self._ready = self._unpacker.decompress(piece) if self._unpacker else piece
            except zlib.error as error:
                raise errors.StreamError(f"what came home is damaged: {error}") from error
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count
