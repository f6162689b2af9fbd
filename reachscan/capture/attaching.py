"""Puts the recorder into a running process, and takes it out again."""

from __future__ import annotations

from typing import NamedTuple

from reachscan import errors
from reachscan.capture.options import ScanOptions
from reachscan.capture.place import Place
from reachscan.capture.recording_options import RecordingOptions

_NO_MEMORY = "memory for the recorder"
"""What the sentence names that says that the process cannot have its tables."""


class Hooks(NamedTuple):
    """What attaching or detaching did to a process.

    Attributes:
        pause_ns: how long all threads of the process were stopped at once, in ns.
        thread_pause_ns: how long one thread was stopped while the others ran; 0 if none was.
        slots: number of hooked functions, and of hooked references to the others.
        modules: number of programs and libraries that contain these references.
        others: number of references that lead elsewhere and were not changed.
        kept: bytes of the recorder that remain mapped.
    """

    pause_ns: int
    thread_pause_ns: int
    slots: int
    modules: int
    others: int
    kept: int

    def pauses(self) -> str:
        """Say how long it was stopped."""
        text = f"it was paused for {self.pause_ns / 1e6:.1f} ms"
        if self.thread_pause_ns:
            text += f", and one thread for {self.thread_pause_ns / 1e6:.1f} ms"
        return text

    def pauses_us(self) -> dict[str, int]:
        """Return the same for JSON."""
        return {
            "pause_us": self.pause_ns // 1000,
            "thread_pause_us": self.thread_pause_ns // 1000,
        }


def attach(place: Place, pid: int, options: RecordingOptions, how: ScanOptions) -> Hooks:
    """Make a running process record its allocations from now on.

    Raises:
        UnrecordableError: it cannot be recorded, or already is.
        ReachscanError: it cannot be stopped.
    """
    settings = options.settings().splitlines()
    return _run(place, pid, [word for line in settings for word in ("--attach", line)], how)


def detach(place: Place, pid: int, how: ScanOptions) -> Hooks:
    """Undo `attach`.

    Raises:
        UnrecordableError: it is not being recorded.
        RecorderBusyError: a thread does not leave the recorder.
        ReachscanError: it cannot be stopped.
    """
    return _run(place, pid, ["--detach"], how)


def _run(place: Place, pid: int, what: list[str], how: ScanOptions) -> Hooks:
    place.check(pid)
    try:
        with place.scan(pid, how._replace(recorder=tuple(what)), None) as frames:
            from reachscan.recording import decode, wire

            hooks = None
            for frame in frames:
                if frame.type == wire.FAILURE:
                    raise decode.failure_of(wire.parse(frame))
                if frame.type == wire.HOOKS:
                    hooks = Hooks(**wire.parse(frame))
    except errors.UnrecordableError as error:
        if _NO_MEMORY in error.sentence:
            error.next_step = "give it less with --memory"
        raise
    except errors.CloneRefusedError as error:
        raise errors.UnrecordableError(error.sentence) from error
    except errors.AllocatorBusyError as error:
        raise errors.RecorderBusyError(error.sentence) from error
    if hooks is None:
        raise errors.StreamError("the stream is damaged: it does not tell what was hooked")
    return hooks
