"""`reachscan scan`: what does a running process leak?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reachscan.commands import leaks, options
from reachscan.errors import ExitStatus
from reachscan.scanning import Options


@click.command("scan")
@options.process
@options.report
@options.review
@options.strict
@options.capture
@options.confirm
@options.save
@options.verbose
def command(
    process: str, save: Path | None, verbose: bool, strict: bool, **given: Any
) -> ExitStatus:
    """Find the leaks of a running process, given by its id or its name if that is unique."""
    capture = options.taken(
        given, "method", "threads", "nice", "timeout", "max_pause", "confirm", "confirm_every"
    )
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    output = options.output(**given)
    options.refuse_clash(save, output.path)
    wanted = Options(**capture, contents=output.selection.contents, verbose=verbose, save=save)
    return leaks.find(process, wanted, output, judge, strict=strict)
