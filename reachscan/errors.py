"""Everything that can go wrong, each with its exit status and what to do next."""

from __future__ import annotations

import enum
import errno
from typing import ClassVar


class ExitStatus(enum.IntEnum):
    """What the exit status of `reachscan` means."""

    CLEAN = 0
    """No leaks, or only possible ones."""
    LEAKS = 1
    """Leaks were found."""
    USAGE = 2
    """The command line makes no sense."""
    FAILED = 3
    """The scan could not be done; one sentence on stderr says why."""
    BUG = 70
    """reachscan itself is wrong."""
    NOT_EXECUTABLE = 126
    """The command of `reachscan run` cannot be executed."""
    NO_COMMAND = 127
    """There is no such command."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C."""


class ReachscanError(Exception):
    """A failure that a person can read: what and why, then what to do next.

    Attributes:
        sentence: what happened and why, without a final full stop.
        next_step: what to do about it; may be empty.
        details: lines that belong below, such as a table to choose from.
    """

    exit_status: ClassVar[ExitStatus] = ExitStatus.FAILED
    default_next_step: ClassVar[str] = ""

    def __init__(
        self, sentence: str, next_step: str | None = None, *, details: tuple[str, ...] = ()
    ) -> None:
        super().__init__(sentence)
        self.details = details
        self.sentence = sentence.rstrip(". ")
        self.next_step = self.default_next_step if next_step is None else next_step


class NoSuchProcessError(ReachscanError):
    """There is no process with that id or name."""

    default_next_step = "check the id with `ps -e`; inside a container it differs from outside"


class NoSuchAddressError(ReachscanError):
    """The process has no memory at that address."""

    default_next_step = "addresses differ from run to run: take one from a report on this process"


class AmbiguousNameError(ReachscanError):
    """Several processes have the given name."""


class UnscannableError(ReachscanError):
    """The process exists but has no heap to look at: a kernel thread, a zombie, or ourselves."""


class AlreadyTracedError(ReachscanError):
    """Another debugger or tracer holds the target."""

    default_next_step = "detach that tracer, or use --method live, which needs none"


class NotPermittedError(ReachscanError):
    """The kernel does not let us look into the target."""

    default_next_step = "run reachscan as root, or give it the capability CAP_SYS_PTRACE"


class TargetGoneError(ReachscanError):
    """The target exited or became another program while it was being scanned."""

    default_next_step = "start it again and scan the new process"


class UnsupportedTargetError(ReachscanError):
    """The target is of a kind that reachscan cannot read."""

    default_next_step = (
        "only programs of x86_64 (32-bit ones, too) and aarch64 are supported so far"
    )


class UnsupportedKernelError(ReachscanError):
    """The kernel, or this Python, lacks what is needed to wait for the end of a process."""

    default_next_step = "Linux 5.3 or later is needed to scan a process more than once"


class AllocatorBusyError(ReachscanError):
    """No moment was found at which the heap was consistent."""

    default_next_step = "scan again when it is less busy"


class HeapInMotionError(ReachscanError):
    """`live` found no moment at which the heap was consistent; the others make one."""

    default_next_step = "use --method clone or copy, which stop the process for a moment"


class StartingUpError(ReachscanError):
    """The loader has not put all libraries of the target in place yet."""

    default_next_step = "scan it again when it has started"


class LayoutUnknownError(ReachscanError):
    """The allocator of the target is not one that reachscan can walk."""

    default_next_step = (
        "only the allocators of glibc and musl, jemalloc 5, mimalloc 2 and 3 (to 3.4) and "
        "gperftools' tcmalloc can be walked"
    )


class CloneRefusedError(ReachscanError):
    """The kernel refused to clone the target."""

    default_next_step = "use --method copy, which needs no clone but stops the target for longer"


class CloneTamperedError(ReachscanError):
    """Somebody wrote to the memory of the clone while it was searched."""

    default_next_step = (
        "the target's user can do that; use --method copy as root, whose process is out of reach"
    )


class UnstoppableError(ReachscanError):
    """A thread of the target does not stop, so that nothing but `live` can serve."""

    default_next_step = "use --method live, which stops nothing, or scan again later"


class PauseTooLongError(ReachscanError):
    """The target would be stopped for longer than --max-pause allows."""

    default_next_step = "allow more with --max-pause MS, or use --method live, which stops nothing"


class NoMemoryError(ReachscanError):
    """A scan takes more memory than there is, or than the control group may have."""

    default_next_step = "free some memory, or scan from outside of the target's container"


class TooLargeError(ReachscanError):
    """The kernel tells more about the target than can be read."""

    default_next_step = "a core file of it (gcore) can be looked at with a debugger"


class UnsupportedMethodError(ReachscanError):
    """The helper cannot capture memory in the way that was asked for."""

    default_next_step = "use --method auto"


class BadCoreError(ReachscanError):
    """A file that should be a core file is none, damaged, cut off, or of a bad moment."""

    default_next_step = (
        "write another one, whole: `gcore PID`, or `ulimit -c unlimited` and a crash"
    )


class TimedOutError(ReachscanError):
    """The scan took longer than --timeout allows."""

    default_next_step = "give it more time with --timeout SECONDS"


class HelperUnavailableError(ReachscanError):
    """The native helper is missing or cannot be started."""

    default_next_step = (
        "install reachscan again, or build the helper with `make build`; "
        "REACHSCAN_HELPER=PATH names another one"
    )


class HelperKilledError(ReachscanError):
    """Somebody or something killed the native helper."""

    default_next_step = "look for the out-of-memory killer in `dmesg`, then scan again"


class WhereError(ReachscanError):
    """What should say where a process is, does not."""

    exit_status = ExitStatus.USAGE
    default_next_step = "write it like ssh:HOST, docker:NAME, adb:SERIAL or exec:COMMAND"


class UnreachableError(ReachscanError):
    """There is no shell at the place where the process should be."""


class ConnectionLostError(ReachscanError):
    """The shell there has ended, or is not heard of any more."""

    default_next_step = "nothing of the scan goes on there; scan again when it can be reached"


class NoHelperError(ReachscanError):
    """The machine there has a processor that there is no helper for."""

    default_next_step = "`make helpers` builds those that there are, besides that of this machine"


class NoPlaceForHelperError(ReachscanError):
    """There is no folder there that the helper can be put into and run from."""

    default_next_step = "set TMPDIR there to a folder that is writable and not mounted noexec"


class StreamError(ReachscanError):
    """A stream is damaged, cut off, or none of ours."""

    default_next_step = "make a new one with `reachscan PID --save FILE.rsc`"


class ReportFileError(ReachscanError):
    """A file that should be a report is none, damaged, or of another version."""

    default_next_step = "make one with `reachscan PID --json --all -o FILE.json`"


class UnknownFormatError(ReachscanError):
    """What is to be reported cannot be written in that format."""

    exit_status = ExitStatus.USAGE


class SuppressionFileError(ReachscanError):
    """A suppression file that cannot be read, or a line of it that makes no sense."""

    exit_status = ExitStatus.USAGE
    default_next_step = "docs/suppressions.md has the format"


class OutputError(ReachscanError):
    """A report or a stream could not be written or read where it was asked for."""

    default_next_step = "name another file"


class RecorderMissingError(ReachscanError):
    """The native recorder is not there."""

    default_next_step = "install reachscan again, or build it with `make build`"


class UnrecordableError(ReachscanError):
    """A program into which the recorder cannot be put, or already is, or which it cannot leave."""

    default_next_step = "`reachscan PID` scans a process as it is"


class RecorderBusyError(UnrecordableError):
    """A thread takes its time to leave the recorder, which stays mapped until then."""

    default_next_step = "detach again later"


class CommandNotFoundError(ReachscanError):
    """There is no such command to run."""

    exit_status = ExitStatus.NO_COMMAND


class CommandNotExecutableError(ReachscanError):
    """The command exists, but cannot be run."""

    exit_status = ExitStatus.NOT_EXECUTABLE


class InternalError(ReachscanError):
    """A bug in reachscan."""

    exit_status = ExitStatus.BUG


class ScanFailedError(ReachscanError):
    """The helper gave up for a reason that this version has no advice about."""

    default_next_step = "run again with -v to see how far it got"


FAILURES: dict[str, type[ReachscanError]] = {
    "no-such-process": NoSuchProcessError,
    "already-traced": AlreadyTracedError,
    "not-permitted": NotPermittedError,
    "target-exited": TargetGoneError,
    "target-execed": TargetGoneError,
    "unsupported-architecture": UnsupportedTargetError,
    "allocator-busy": AllocatorBusyError,
    "heap-in-motion": HeapInMotionError,
    "starting-up": StartingUpError,
    "layout-unknown": LayoutUnknownError,
    "clone-refused": CloneRefusedError,
    "clone-tampered": CloneTamperedError,
    "unstoppable": UnstoppableError,
    "pause-too-long": PauseTooLongError,
    "no-memory": NoMemoryError,
    "too-large": TooLargeError,
    "unsupported-method": UnsupportedMethodError,
    "bad-core": BadCoreError,
    "unrecordable": UnrecordableError,
    "timeout": TimedOutError,
    "internal": InternalError,
}


def failure(
    code: str, sentence: str, *, step: str = "", number: int = 0, tid: int = 0, address: int = 0
) -> ReachscanError:
    """Turn a failure record into the error class that knows what to do about it.

    Args:
        code: one of `FAILURES`; others become `ScanFailedError`.
        sentence: what and why, as the helper worded it.
        step: name of the step that failed.
        number: errno, 0 if none.
        tid: thread concerned, 0 if none.
        address: address concerned, 0 if none.
    """
    kind = FAILURES.get(code, ScanFailedError)
    if kind is not InternalError:
        return kind(sentence)
    details = [f"step {step}"] if step else []
    if number:
        details.append(errno.errorcode.get(abs(number), f"errno {number}"))
    if tid:
        details.append(f"thread {tid}")
    if address:
        details.append(f"address {address:#x}")
    return InternalError(f"{sentence.rstrip('. ')} ({', '.join(details)})" if details else sentence)
