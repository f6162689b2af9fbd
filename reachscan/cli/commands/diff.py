"""`reachscan diff`: what leaks more than it did?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reachscan import reports
from reachscan.cli.commands import formats, options, paths
from reachscan.errors import ExitStatus
from reachscan.history import comparison


@click.command("diff")
@click.argument("old", type=paths.READABLE)
@click.argument("new", type=paths.READABLE)
@formats.one_of(reports.DIFF)
@options.destination
@options.limit
def command(old: Path, new: Path, **given: Any) -> ExitStatus:
    """Show what leaks more, or less, in NEW than in OLD.

    Both are files made by --save or --json, of the same or of different processes of a program.
    If they were made by `reachscan heap`, all live blocks are compared instead of leaks.
    The exit status is 1 if anything is new or has grown, and 0 if not.
    """
    output = options.output(**given)
    found = comparison.diff(old, new)
    output.write(
        lambda style: reports.lines(reports.DIFF, output.format, found, output.selection, style)
    )
    return ExitStatus.LEAKS if found.grew else ExitStatus.CLEAN
