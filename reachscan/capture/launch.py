"""Starts a command with the recorder preloaded, and reports what happens to it."""

from __future__ import annotations

import enum
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from reachscan import errors
from reachscan.capture import command_file
from reachscan.capture.lifetime import Lifetime
from reachscan.capture.recording_options import VARIABLE, RecordingOptions

RECORDER = Path(__file__).parents[1] / "_native/reachscan-recorder.so"

_PRELOAD = "LD_PRELOAD"
_SEPARATORS = " :"
"""Separators in LD_PRELOAD, which has no quoting."""
_EXITS_UNRECORDED, _ENDS_RECORDED, _ASKS = range(3)
"""Messages of the recorder (native/recorder/process.cpp)."""
_LOOK_SECONDS = 0.1
"""Seconds between two checks of the process's size."""


class Event(enum.Enum):
    """What happened to the process that was started."""

    DUE = "the time for a report has come"
    GROWN = "its memory has grown past the mark"
    ASKED = "the signal that asks for a report was sent to it"
    ENDING = "it has done all that it will ever do, and waits for `Launch.resume_target`"


class Launch:
    """A command that runs with the recorder preloaded; a context manager.

    Raises:
        CommandNotFoundError: the command does not exist.
        CommandNotExecutableError: it cannot be executed.
        UnrecordableError: the loader would not let the recorder in.
        RecorderMissingError: the recorder is missing, or may not be read.
        UnsupportedKernelError: the kernel cannot report the end of a process.
    """

    def __init__(self, command: Sequence[str], options: RecordingOptions, asking: int = 0) -> None:
        """Start the command.

        Args:
            command: the words of its command line.
            options: what to record.
            asking: the signal that requests a report; 0 for none.
        """
        command_file.check(command[0])
        if not os.access(RECORDER, os.R_OK):
            raise errors.RecorderMissingError(f"the recorder {RECORDER} is missing or unreadable")
        with Lifetime(os.getpid()):
            pass  # refuse a kernel without pidfds before anything is started
        self._folder = Path(tempfile.mkdtemp(prefix="reachscan-"))
        self._conversation: socket.socket | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # The command may drop its privileges before it exits.
            self._folder.chmod(0o711)
            notice = self._folder / "end"
            self._listener.bind(str(notice))
            notice.chmod(0o666)
            self._listener.listen()
            environment = self._environment(options, notice, asking)
            self._process = _start(command, environment, asking)
        except BaseException:
            self._clean()
            raise
        self.pid = self._process.pid
        self.is_recorded = False
        """Whether the process was recorded, as its recorder says at its exit."""
        self.was_confined = False
        """Whether the process, which has exited, had installed a seccomp filter."""

    def __enter__(self) -> Launch:
        self._old_handlers = {
            # The terminal's signals reach the command, too, which decides what they mean.
            signal.SIGINT: signal.signal(signal.SIGINT, _ignore_for_command),
            signal.SIGQUIT: signal.signal(signal.SIGQUIT, _ignore_for_command),
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._forward_signal),
            signal.SIGHUP: signal.signal(signal.SIGHUP, self._forward_signal),
        }
        return self

    def __exit__(self, *_: object) -> None:
        self.resume_target()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._clean()

    def events(self, every: float | None, at: int | None) -> Iterator[Event]:
        """Yield events until the process has exited.

        Args:
            every: seconds between two DUE events; None for none.
            at: resident bytes; GROWN is reported each time that the process exceeds them.
        """
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        due = time.monotonic() + every if every else None
        above = False
        with Lifetime(self.pid) as life:
            poll.register(life, select.POLLIN)
            while True:
                happened = dict(poll.poll(_milliseconds(due, looks=at is not None)))
                event = self._receive_event() if self._listener.fileno() in happened else None
                if event:
                    yield event
                if event is Event.ENDING:
                    self.resume_target()
                    poll.unregister(self._listener)  # no event follows
                    due = every = at = None
                if life.fileno() in happened:
                    # It has not been waited for, so that its number is still its own.
                    self.was_confined = _seccomp(self.pid) != _seccomp(os.getpid())
                    return
                if due and every and time.monotonic() >= due:
                    yield Event.DUE
                    due = time.monotonic() + every
                was_above, above = above, at is not None and _resident_bytes(self.pid) > at
                if above and not was_above:
                    yield Event.GROWN

    def resume_target(self) -> None:
        """Let the process continue its exit."""
        if self._conversation:
            self._conversation.close()
            self._conversation = None

    def status(self) -> int:
        """Wait for the process, and return its exit status as a shell would."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def killer(self) -> int:
        """Return the signal that has ended the process; 0 if it has ended by itself."""
        return max(0, -self._process.wait())

    def _receive_event(self) -> Event | None:
        """Return the process's message; None if it came from another process."""
        conversation, _ = self._listener.accept()
        credentials = conversation.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")
        )
        if struct.unpack("iII", credentials)[0] != self.pid:
            conversation.close()
            return None
        notice = int.from_bytes(conversation.recv(4), "little")
        if notice == _ASKS:
            conversation.close()
            return Event.ASKED
        self._conversation = conversation
        self.is_recorded = notice == _ENDS_RECORDED
        return Event.ENDING

    def _environment(self, options: RecordingOptions, notice: Path, asking: int) -> dict[str, str]:
        library = RECORDER
        if any(separator in str(library) for separator in _SEPARATORS):
            library = self._folder / "recorder.so"
            library.symlink_to(RECORDER)
        preloaded = os.environ.get(_PRELOAD)
        return {
            **os.environ,
            _PRELOAD: f"{library}:{preloaded}" if preloaded else str(library),
            VARIABLE: options.settings(os.getpid(), str(notice), asking),
        }

    def _forward_signal(self, number: int, _: FrameType | None) -> None:
        self._process.send_signal(number)

    def _clean(self) -> None:
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _start(
    command: Sequence[str], environment: dict[str, str], asking: int
) -> subprocess.Popen[bytes]:
    # The child inherits that the signal is ignored, until the recorder handles it.
    before = signal.signal(asking, signal.SIG_IGN) if asking else None
    try:
        return subprocess.Popen(command, env=environment)
    except FileNotFoundError as error:
        raise errors.CommandNotFoundError(f"cannot start {command[0]}: {error.strerror}") from error
    except OSError as error:
        raise errors.CommandNotExecutableError(
            f"cannot start {command[0]}: {error.strerror}"
        ) from error
    finally:
        if asking:
            signal.signal(asking, before)


def _ignore_for_command(number: int, frame: FrameType | None) -> None:
    """Do nothing. The command would inherit an ignored signal, but not a handler."""


def _milliseconds(due: float | None, *, looks: bool) -> float | None:
    left = None if due is None else max(0.0, due - time.monotonic())
    if looks:
        left = _LOOK_SECONDS if left is None else min(left, _LOOK_SECONDS)
    return None if left is None else 1000 * left


def _seccomp(pid: int) -> list[str]:
    """Return what /proc tells about the filters of a process."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if line.startswith("Seccomp")]


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0  # it has ended
