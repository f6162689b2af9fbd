"""`reachscan heap`: what is the live heap made of?"""

from __future__ import annotations

from typing import Any

import click

from reachscan.capture.options import Question
from reachscan.cli.commands import asking, options
from reachscan.errors import ExitStatus


@click.command("heap")
@options.process
@options.page_or_lines
@options.limit
@options.contents
@options.capture
@options.save
@options.verbose
def command(process: str, **given: Any) -> ExitStatus:
    """Tell what the heap of a running process is made of, leaked or not: kinds of blocks.

    What grows without being leaked is found by comparing two of these:

    \b
      reachscan heap 4711 --save morning.rsc
      reachscan heap 4711 --save evening.rsc
      reachscan diff morning.rsc evening.rsc

    The exit status is 0 if there is an answer.
    """
    return asking.ask(process, Question("heap"), **given)
