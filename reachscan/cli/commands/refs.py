"""`reachscan refs`: who points to the block at an address?"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from reachscan import reports, scanning
from reachscan.cli.commands import asking, formats, options
from reachscan.errors import ExitStatus


@click.command("refs")
@options.process
@options.elsewhere
@options.address
@formats.one_of(reports.EXPLAIN)
@options.destination
@options.limit
@options.capture
@options.python
@options.save
@options.verbose
def command(process: str, address: int, **given: Any) -> ExitStatus:
    """List every word that points into the block at ADDRESS in a running process.

    Each is listed with its place: a variable, stack or register, or another block, live or leaked.

    \b
      reachscan refs 4711 0x55d0c8a41230

    ADDRESS is hexadecimal with a leading 0x, or decimal. An address inside a block stands for the
    block. The exit status is 0 if the question could be answered, even if nothing points there.
    """
    return asking.ask(partial(scanning.refs, process, address), **given)
