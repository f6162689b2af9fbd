"""`reachscan attach`: makes a running process record who allocates what."""

from __future__ import annotations

from typing import Any

import click

from reachscan.capture import attaching
from reachscan.cli import console
from reachscan.cli.commands import options, recording
from reachscan.errors import ExitStatus
from reachscan.scanning import reached


@click.command("attach")
@options.process
@options.on
@recording.recording
@options.json
@options.verbose
def command(process: str, json_: bool, **given: Any) -> ExitStatus:
    """Have a running process record its allocations until `reachscan detach`.

    Reports on it show stacks from now on. The process is stopped for a moment, and works on
    whatever happens to reachscan. Libraries that it loads later are recorded, too.
    """
    record = recording.options_of_attached(given)
    how = options.scan(given)
    with reached(how) as place:
        pid = place.resolve(process)
        hooks = attaching.attach(place, pid, record, how)
    modules = f"{hooks.modules} module{'s' * (hooks.modules != 1)}"
    what = f"functions and calls in {modules}" if hooks.modules else "functions"
    hooked = f"{hooks.slots} {what} hooked"
    text = f"process {pid} now records its allocations ({hooked}); {hooks.pauses()}"
    if hooks.others:
        text += (
            f"; {hooks.others} that lead to other functions of these names are not, and the blocks "
            "from there have no stack"
        )
    told = {"hooks": hooks.slots, "modules": hooks.modules, "not_hooked": hooks.others}
    console.tell(text, {"pid": pid, **told, **hooks.pauses_us()} if json_ else None)
    return ExitStatus.CLEAN
