"""`reachscan heap`: what is the live heap made of?"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from reachscan import reports, scanning
from reachscan.cli.commands import asking, formats, options
from reachscan.errors import ExitStatus


@click.command("heap")
@options.process
@options.elsewhere
@formats.one_of(reports.HEAP)
@options.destination
@options.limit
@options.profile
@options.contents
@options.candidates
@click.option("--python", is_flag=True, help="Also count Python's objects, by their types.")
@options.capture
@options.save
@options.verbose
def command(process: str, **given: Any) -> ExitStatus:
    """Show which kinds of blocks the heap of a running process consists of, leaked or not.

    To find what grows without being leaked, compare two of these:

    \b
      reachscan heap 4711 --save morning.rsc
      reachscan heap 4711 --save evening.rsc
      reachscan diff morning.rsc evening.rsc

    The exit status is 0 if the question could be answered.
    """
    return asking.ask(partial(scanning.heap, process), **given)
