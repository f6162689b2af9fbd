"""`reachscan scan`: what does a running process leak?"""

from __future__ import annotations

from typing import Any

import click

from reachscan import reports
from reachscan.cli.commands import formats, leaks, options
from reachscan.errors import ExitStatus


@click.command("scan")
@options.process
@options.elsewhere
@click.option(
    "--all-processes",
    is_flag=True,
    help="If several processes have that name, scan each of them in turn.",
)
@formats.one_of(reports.LEAKS)
@options.destination
@options.report
@options.profile
@options.review
@options.strict
@options.capture
@options.python
@options.confirm
@options.thorough
@options.save
@options.verbose
def command(
    process: str,
    all_processes: bool,
    strict: bool,
    **given: Any,
) -> ExitStatus:
    """Find the leaks of a running process, given by its id or by a name that `ps` prints."""
    wanted = options.scan(given)
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    output = options.output(**given)
    wanted = wanted._replace(contents=output.selection.contents)
    if not all_processes:
        return leaks.find(process, wanted, output, judge, strict=strict)
    if wanted.save or reports.FORMATS[reports.LEAKS][output.format].file:
        what = "--save" if wanted.save else f"--format {output.format}"
        raise click.UsageError(
            f"{what} covers a single process; leave out --all-processes, or name one id"
        )
    return leaks.find_each(process, wanted, output, judge, strict=strict)
