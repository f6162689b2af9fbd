"""`reachscan explain`: what is the block at an address, and what keeps it?"""

from __future__ import annotations

from typing import Any

import click

from reachscan.capture.options import Question
from reachscan.cli.commands import asking, options
from reachscan.errors import ExitStatus


@click.command("explain")
@options.process
@options.address
@options.lines
@options.capture
@options.save
@options.verbose
def command(process: str, address: int, **given: Any) -> ExitStatus:
    """Tell what lies at ADDRESS of a running process, and what keeps it there.

    The answer says which block it is, of which arena, and whether it is live, leaked or free; and
    shows the shortest chain of references from a variable, stack or register to it, or, if it is
    leaked, from the head of the structure that it belongs to.

    \b
      reachscan explain 4711 0x55d0c8a41230
      reachscan explain nginx 0x7f3a14000b60 --json

    ADDRESS is written in hexadecimal with 0x in front, or in decimal. An address inside of a block
    stands for the block. The exit status is 0 if there is an answer, whatever it is.
    """
    return asking.ask(process, Question("explain", address), **given)
