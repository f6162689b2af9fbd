"""Shared code of the commands that ask about live memory instead of leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union

from reachscan.capture.options import ScanOptions
from reachscan.capture.place import Place
from reachscan.cli import console
from reachscan.cli.commands import leaks, options
from reachscan.errors import ExitStatus
from reachscan.result import BlockAnswer, HeapScan
from reachscan.scanning import Progressed, reached

Ask = Callable[[ScanOptions, Progressed, Place], Union[HeapScan, BlockAnswer]]


def ask(question: Ask, **given: Any) -> ExitStatus:
    """Ask a question about a process and report the answer.

    Args:
        question: scans the process.
        given: the options for `options.scan` and `options.output`.
    """
    wanted = options.scan(given)
    shows_contents = "contents" in given
    output = options.output(**given)
    contents = output.selection.contents if shows_contents else 0
    wanted = wanted._replace(contents=contents)
    with console.progress(wanted.verbose) as progress, reached(wanted) as place:
        result = question(wanted, progress, place)
        root = place.sysroot(result.recording, progress)
        answer = leaks.with_details(result, output, root=root)
    if wanted.verbose:
        console.print_steps(answer)
    output.report(answer)
    if result.save_error:
        raise result.save_error
    return ExitStatus.CLEAN
