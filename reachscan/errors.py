"""Everything that can go wrong, each with its exit status and what to do next."""

from __future__ import annotations

import enum
import errno
from typing import ClassVar


class ExitStatus(enum.IntEnum):
    """Exit statuses of `reachscan`."""

    CLEAN = 0
    """No leaks, or only possible ones."""
    LEAKS = 1
    """Leaks were found."""
    USAGE = 2
    """The command line makes no sense."""
    FAILED = 3
    """The scan failed; one sentence on stderr says why."""
    BUG = 70
    """A bug in reachscan."""
    NOT_EXECUTABLE = 126
    """The command of `reachscan run` cannot be executed."""
    NO_COMMAND = 127
    """There is no such command."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C."""


class ReachscanError(Exception):
    """A failure in words for people: what happened and why, and what to do next.

    Attributes:
        sentence: what happened and why, without a final full stop.
        next_step: what to do about it; may be empty.
        details: lines to print below it, such as a table of processes to choose from.
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
    """The process has no heap to scan: it is a kernel thread, a zombie, or reachscan itself."""


class AlreadyTracedError(ReachscanError):
    """Another debugger or tracer holds the target."""

    default_next_step = "detach that tracer, or use --method live, which needs none"


class NotPermittedError(ReachscanError):
    """The kernel does not let us trace the target."""

    default_next_step = "run reachscan as root, or give it the capability CAP_SYS_PTRACE"


class TargetGoneError(ReachscanError):
    """The target exited, or executed another program, during the scan."""

    default_next_step = "start it again and scan the new process"


class UnsupportedTargetError(ReachscanError):
    """reachscan does not support this kind of target."""

    default_next_step = (
        "only programs of x86_64, aarch64 (32-bit ones, too) and armv7 are supported so far"
    )


class UnsupportedPageSizeError(ReachscanError):
    """A core file is of a machine whose pages have another size."""

    default_next_step = "scan the core file on a machine with such pages"


class UnsupportedKernelError(ReachscanError):
    """The kernel, or this Python, cannot wait for another process to exit."""

    default_next_step = "Linux 5.3 or later is needed to scan a process more than once"


class AllocatorBusyError(ReachscanError):
    """No moment was found at which the heap was consistent."""

    default_next_step = "scan again when it is less busy"


class HeapInMotionError(ReachscanError):
    """`live` found no moment at which the heap was consistent; the other methods create one."""

    default_next_step = "use --method clone or copy, which stop the process for a moment"


class StartingUpError(ReachscanError):
    """The loader of the target is still loading libraries."""

    default_next_step = "scan it again when it has started"


class LayoutUnknownError(ReachscanError):
    """reachscan cannot walk the target's allocator."""

    default_next_step = (
        "only the allocators of glibc and musl, jemalloc 5, mimalloc 1.7 to 3.4, "
        "gperftools' tcmalloc and Scudo (of LLVM 14 to 19) can be walked, and those that "
        "export malloc_iterate(); in 32-bit programs only that of glibc"
    )


class CloneRefusedError(ReachscanError):
    """The kernel refused to clone the target."""

    default_next_step = "use --method copy, which needs no clone but stops the target for longer"


class CloneTamperedError(ReachscanError):
    """Another process wrote to the clone's memory during the search."""

    default_next_step = (
        "the target's user can do that; use --method copy as root, whose process is out of reach"
    )


class UnstoppableError(ReachscanError):
    """A thread of the target cannot be stopped, so only `live` can scan it."""

    default_next_step = "use --method live, which stops nothing, or scan again later"


class PauseTooLongError(ReachscanError):
    """The target would be stopped for longer than --max-pause allows."""

    default_next_step = "allow more with --max-pause MS, or use --method live, which stops nothing"


class NoMemoryError(ReachscanError):
    """The scan needs more memory than the machine has, or than its control group may use."""

    default_next_step = "free some memory, or scan from outside of the target's container"


class TooLargeError(ReachscanError):
    """The kernel's answer about the target is too long to be read."""

    default_next_step = "a core file of it (gcore) can be looked at with a debugger"


class UnsupportedMethodError(ReachscanError):
    """The requested method cannot capture this process or is not available."""

    default_next_step = "use --method auto"


class BadCoreError(ReachscanError):
    """A file is not a core file, is damaged or truncated, or was written at a bad moment."""

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


class MissingModuleError(ReachscanError):
    """A module of Python, or of a package that reachscan needs, is not installed."""

    default_next_step = "install reachscan again, for a Python that has all its standard modules"


class HelperKilledError(ReachscanError):
    """A signal from another process killed the native helper."""

    default_next_step = "look for the out-of-memory killer in `dmesg`, then scan again"


class WhereError(ReachscanError):
    """The value of `--on` is not understood."""

    exit_status = ExitStatus.USAGE
    default_next_step = "write it like ssh:HOST, docker:NAME, adb:SERIAL or exec:COMMAND"


class UnreachableError(ReachscanError):
    """No shell can be started where the process should be."""


class ConnectionLostError(ReachscanError):
    """The connection to the shell was lost, or the shell exited."""

    default_next_step = "nothing of the scan goes on there; scan again when it can be reached"


class NoHelperError(ReachscanError):
    """The other machine has a processor that there is no helper for."""

    default_next_step = "`make helpers` builds the helpers for all other supported processors"


class NoPlaceForHelperError(ReachscanError):
    """No folder on the other machine can hold the helper and let it run."""

    default_next_step = "set TMPDIR there to a folder that is writable and not mounted noexec"


class StreamError(ReachscanError):
    """A stream is damaged or truncated, or is not a reachscan stream."""

    default_next_step = "make a new one with `reachscan PID --save FILE.rsc`"


class ReportFileError(ReachscanError):
    """A file is not a report, is damaged, or has an unknown version."""

    default_next_step = "make one with `reachscan PID --json --all -o FILE.json`"


class UnknownFormatError(ReachscanError):
    """The format cannot express the result."""

    exit_status = ExitStatus.USAGE


class SuppressionFileError(ReachscanError):
    """A suppression file cannot be read, or one of its lines makes no sense."""

    exit_status = ExitStatus.USAGE
    default_next_step = "docs/suppressions.md has the format"


class OutputError(ReachscanError):
    """A report or a stream could not be written, or a file could not be read."""

    default_next_step = "name another file"


class RecorderMissingError(ReachscanError):
    """The native recorder is missing."""

    default_next_step = "install reachscan again, or build it with `make build`"


class UnrecordableError(ReachscanError):
    """The recorder cannot be put into the program, is there already, or cannot be removed."""

    default_next_step = "`reachscan PID` scans a process as it is"


class RecorderBusyError(UnrecordableError):
    """It is no moment to attach, or a thread is in the recorder, which stays until it has left."""

    default_next_step = "try again later"


class CommandNotFoundError(ReachscanError):
    """The command to run does not exist."""

    exit_status = ExitStatus.NO_COMMAND


class CommandNotExecutableError(ReachscanError):
    """The command exists, but cannot be run."""

    exit_status = ExitStatus.NOT_EXECUTABLE


class InternalError(ReachscanError):
    """A bug in reachscan."""

    exit_status = ExitStatus.BUG


class ScanFailedError(ReachscanError):
    """The helper failed for a reason that this version does not know."""

    default_next_step = "run again with -v to see how far it got"


FAILURES: dict[str, type[ReachscanError]] = {
    "no-such-process": NoSuchProcessError,
    "already-traced": AlreadyTracedError,
    "not-permitted": NotPermittedError,
    "target-exited": TargetGoneError,
    "target-execed": TargetGoneError,
    "unsupported-architecture": UnsupportedTargetError,
    "unsupported-page-size": UnsupportedPageSizeError,
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
    """Turn a failure record into the error that knows the next step.

    Args:
        code: one of `FAILURES`; others become `ScanFailedError`.
        sentence: what happened and why, in the helper's words.
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
