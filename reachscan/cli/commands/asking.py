"""What the commands have in common that ask about live memory instead of leaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reachscan.capture.helper import Question
from reachscan.cli import console
from reachscan.cli.commands import leaks, options
from reachscan.errors import ExitStatus
from reachscan.scanning import Options, scan


def ask(
    process: str, question: Question, save: Path | None, verbose: bool, **given: Any
) -> ExitStatus:
    """Ask a question about a process and report the answer.

    Args:
        process: its id or name.
        question: what to find out.
        save: file to keep the raw scan in.
        verbose: tell what each step does and costs.
        given: options that `options.capture` and `options.output` take.
    """
    capture = options.taken(given, "method", "threads", "nice", "timeout", "max_pause")
    shows_contents = "contents" in given
    output = options.output(**given)
    options.refuse_clash(save, output.path)
    contents = output.selection.contents if shows_contents else 0
    wanted = Options(**capture, contents=contents, verbose=verbose, save=save, question=question)
    with console.progress(verbose) as progress:
        result = leaks.with_candidates(scan(process, wanted, progress), output, live=True)
    if verbose:
        console.talk_about(result)
    output.report(result)
    if result.save_error:
        raise result.save_error
    return ExitStatus.CLEAN
