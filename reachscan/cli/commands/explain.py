"""`reachscan explain`: what is the block at an address, and what keeps it?"""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from reachscan import reports, scanning
from reachscan.cli.commands import asking, formats, options
from reachscan.errors import ExitStatus


@click.command("explain")
@options.process
@options.elsewhere
@options.address
@formats.one_of(reports.EXPLAIN)
@options.destination
@options.capture
@options.python
@options.save
@options.verbose
def command(process: str, address: int, **given: Any) -> ExitStatus:
    """Show what is at ADDRESS in a running process, and what keeps it there.

    The answer names the block and its arena, and says whether it is live, leaked or free. It
    shows the shortest chain of references to the block from a variable, stack or register, or, if
    the block is leaked, from the head of its structure.

    \b
      reachscan explain 4711 0x55d0c8a41230
      reachscan explain nginx 0x7f3a14000b60 --json

    ADDRESS is hexadecimal with a leading 0x, or decimal. An address inside a block stands for the
    block. The exit status is 0 if the question could be answered, whatever the answer is.
    """
    return asking.ask(partial(scanning.explain, process, address), **given)
