"""`reachscan report`: what did a process leak when it was scanned?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reachscan import reports
from reachscan.cli import console
from reachscan.cli.commands import formats, leaks, options, paths
from reachscan.errors import ExitStatus
from reachscan.result import LeakScan
from reachscan.scanning import load


@click.command("report")
@click.argument("file", type=paths.READABLE)
@options.root
@formats.one_of(reports.LEAKS, reports.HEAP, reports.EXPLAIN)
@options.destination
@options.report
@options.profile
@options.review
@options.strict
@options.verbose
def command(file: Path, root: str, verbose: bool, strict: bool, **given: Any) -> ExitStatus:
    """Report on a scan that was saved with --save, here or on another machine.

    A scan that the helper wrote alone, on a device without Python, has no names yet. They are read
    from copies of the device's files, or of its debug symbols, below --sysroot.

    \b
      reachscan report day1.rsc --all
      reachscan report scan.rsc --sysroot ~/images/board7

    FILE may also be an Android native heap dump (versions 1.0 to 1.2).
    """
    judges = options.judges(given, strict=strict)
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    output = options.output(**given)
    result = load(file, root=root)
    if isinstance(result, LeakScan):
        result = judge(result)
    elif judges:
        raise click.UsageError(f"{options.JUDGING}; {file} is not about leaks, so leave them out")
    result = leaks.with_details(result, output, root=root)
    if verbose:
        console.print_steps(result)
    output.report(result)
    if isinstance(result, LeakScan):
        return leaks.status(result, strict)
    return ExitStatus.CLEAN
