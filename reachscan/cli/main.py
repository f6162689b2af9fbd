"""The entry point: runs the command line, and turns every outcome into an exit status."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from reachscan import __version__, errors
from reachscan.capture import interrupts
from reachscan.cli import console
from reachscan.errors import ExitStatus

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; every failure is reported in one line.

    Args:
        arguments: words after the program's name; None for the process's own.
    """
    console.occupy_closed_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbose = bool({"-v", "--verbose"} & set(words))
    # `timeout 10 reachscan ...` and a closed terminal must clean up just like Ctrl-C.
    for number in set(interrupts.signals()) - {signal.SIGINT}:
        signal.signal(number, signal.default_int_handler)
    interrupts.deliver_all()
    # numpy's linear algebra, which nothing here uses, would start threads that occupy processors
    # during the search.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Looking for garbage while libraries load, and in all of them at the end, would take longer
    # than to scan a small process.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    try:
        status = _run(words)
    except KeyboardInterrupt:
        # One that came while a named tuple was made (which takes eval) would have CPython kill
        # itself in the end, whatever the exit status, were it not for this next eval.
        eval("None")
        console.talk("interrupted: no report")
        status = ExitStatus.INTERRUPTED
    except errors.ReachscanError as error:
        status = _show_error(error, verbose)
    except Exception as error:
        status = _show_unexpected(error, verbose)
    sys.exit(status or ExitStatus.CLEAN)


def _run(words: list[str]) -> int | None:
    if len(words) == 1 and words[0].isascii() and words[0].isdigit():
        # No options to look at: what reads them takes longer to load than such a scan to do.
        from reachscan.cli.commands import leaks

        try:
            return leaks.find(words[0])
        except KeyboardInterrupt:
            console.end_line()  # that of the ^C, as with options
            raise
    from reachscan.cli import program

    return program.run(words)


def _show_unexpected(error: Exception, verbose: bool) -> ExitStatus:
    if isinstance(error, OSError) and error.errno in _FULL_DISK:
        console.forget(sys.stdout)
        return _show_error(
            errors.OutputError(
                f"cannot write: {error.strerror}", "make room there, or write to another place"
            ),
            verbose,
        )
    if isinstance(error, MemoryError):
        return _show_error(
            errors.NoMemoryError(
                "there is too little memory for this", "free some, or lift the limit (`ulimit -v`)"
            ),
            verbose,
        )
    # Python can be built without some of its own modules, such as _ctypes.
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("reachscan"):
        return _show_error(errors.MissingModuleError(f"this Python lacks {error.name}"), verbose)
    return _show_bug(f"{type(error).__name__}: {error}", verbose)


def _show_error(error: errors.ReachscanError, verbose: bool) -> ExitStatus:
    if error.exit_status == ExitStatus.BUG:
        return _show_bug(error.sentence, verbose)
    console.report_error(error)
    return error.exit_status


def _show_bug(sentence: str, verbose: bool) -> ExitStatus:
    if verbose:
        import traceback

        traceback.print_exc()
    console.talk(
        f"this is a bug in reachscan {__version__}: {sentence}; "
        "please report this line, with what -v adds to it, as README.md says (Reporting a bug)"
    )
    return ExitStatus.BUG
