"""`reachscan scan`: what does a running process leak?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reachscan.capture import processes
from reachscan.cli.commands import leaks, options
from reachscan.errors import ExitStatus
from reachscan.scanning import Options


@click.command("scan")
@options.process
@click.option(
    "--all-processes",
    is_flag=True,
    help="If several processes have that name, scan them one after another.",
)
@options.report
@options.review
@options.strict
@options.capture
@options.confirm
@options.save
@options.verbose
def command(
    process: str,
    all_processes: bool,
    save: Path | None,
    verbose: bool,
    strict: bool,
    **given: Any,
) -> ExitStatus:
    """Find the leaks of a running process, given by its id or by a name that `ps` prints."""
    capture = options.taken(
        given, "method", "threads", "nice", "timeout", "max_pause", "confirm", "confirm_every"
    )
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    output = options.output(**given)
    options.refuse_clash(save, output.path)
    wanted = Options(**capture, contents=output.selection.contents, verbose=verbose, save=save)
    if not all_processes:
        return leaks.find(process, wanted, output, judge, strict=strict)
    if save or output.format == "html":
        what = "--save keeps" if save else "a page is about"
        raise click.UsageError(f"{what} one process; leave out --all-processes, or name one id")
    return leaks.find_each(processes.find(process), wanted, output, judge, strict=strict)
