"""`reachscan report`: what did a process leak when it was scanned?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reachscan import console
from reachscan.commands import options
from reachscan.errors import ExitStatus
from reachscan.scanning import load


@click.command("report")
@click.argument("file", type=click.Path(path_type=Path))
@options.report
@options.verbose
def command(file: Path, verbose: bool, **given: Any) -> ExitStatus:
    """Make a report from a scan that was kept with --save, here or on another machine."""
    output = options.output(**given)
    options.refuse_clash(file, output.path)
    result = load(file)
    if verbose:
        console.talk_about(result)
    output.report(result)
    return ExitStatus.LEAKS if result.recording.totals.leaked else ExitStatus.CLEAN
