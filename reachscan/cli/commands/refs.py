"""`reachscan refs`: who points to the block at an address?"""

from __future__ import annotations

from typing import Any

import click

from reachscan.capture.options import Question
from reachscan.cli.commands import asking, options
from reachscan.errors import ExitStatus


@click.command("refs")
@options.process
@options.address
@options.lines
@options.limit
@options.capture
@options.save
@options.verbose
def command(process: str, address: int, **given: Any) -> ExitStatus:
    """List every word that points into the block at ADDRESS of a running process.

    For each one the place is told: a variable, stack or register, or another block, live or leaked.

    \b
      reachscan refs 4711 0x55d0c8a41230

    ADDRESS is written in hexadecimal with 0x in front, or in decimal. An address inside of a block
    stands for the block. The exit status is 0 if there is an answer, even if nobody points there.
    """
    return asking.ask(process, Question("refs", address), **given)
