"""What the commands have in common that ask about live memory instead of leaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reachscan.capture.options import ScanOptions
from reachscan.cli import console
from reachscan.cli.commands import leaks, options
from reachscan.errors import ExitStatus
from reachscan.result import BlockAnswer, HeapScan
from reachscan.scanning import Progressed

Ask = Callable[[ScanOptions, Progressed], HeapScan | BlockAnswer]


def ask(question: Ask, **given: Any) -> ExitStatus:
    """Ask a question about a process and report the answer.

    Args:
        question: scans the process.
        given: options that `options.scan` and `options.output` take.
    """
    wanted = options.scan(given)
    shows_contents = "contents" in given
    output = options.output(**given)
    options.refuse_clash(wanted.save, output.path)
    contents = output.selection.contents if shows_contents else 0
    wanted = wanted._replace(contents=contents)
    with console.progress(wanted.verbose) as progress:
        result = leaks.with_details(question(wanted, progress), output, root=None)
    if wanted.verbose:
        console.talk_about(result)
    output.report(result)
    if result.save_error:
        raise result.save_error
    return ExitStatus.CLEAN
