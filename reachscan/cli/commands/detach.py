"""`reachscan detach`: takes the recorder out of a process again."""

from __future__ import annotations

from typing import Any

import click

from reachscan.capture import attaching
from reachscan.cli import console
from reachscan.cli.commands import options
from reachscan.errors import ExitStatus
from reachscan.scanning import reached


@click.command("detach")
@options.process
@options.on
@options.json
@options.verbose
def command(process: str, json_: bool, **given: Any) -> ExitStatus:
    """End what `reachscan attach` has begun, and leave the process as it was before."""
    how = options.scan(given)
    with reached(how) as place:
        pid = place.resolve(process)
        hooks = attaching.detach(place, pid, how)
    text = f"process {pid} no longer records its allocations; {hooks.pauses()}"
    if hooks.kept:
        text += (
            f"; {hooks.kept} bytes of code stay mapped, since the program may have kept a pointer "
            "to them, and lead on to its allocator"
        )
    told = {"kept_bytes": hooks.kept, **hooks.pauses_us()}
    console.tell(text, {"pid": pid, **told} if json_ else None)
    return ExitStatus.CLEAN
