"""`reachscan watch`: do the leaks of a process grow?"""

from __future__ import annotations

from typing import Any

import click

from reachscan import reports
from reachscan.cli import console
from reachscan.cli.commands import durations, formats, options
from reachscan.errors import ExitStatus
from reachscan.history.watching import Ended, Event, Watch, Why
from reachscan.result import LeakScan
from reachscan.scanning import reached, scan


@click.command("watch")
@options.process
@options.elsewhere
@click.option(
    "--every",
    type=durations.SECONDS,
    default=60.0,
    metavar="SECONDS",
    help="Time between scans (default 60).",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Stop after this many scans."
)
@formats.one_of(reports.WATCH)
@click.option("--logfmt", is_flag=True, help="Same as --format logfmt.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    default=5,
    help="How many of the kinds that grew are listed (default 5).",
)
@options.capture
@options.python
@options.confirm
@options.suppress
@options.verbose
def command(
    process: str, every: float, count: int | None, logfmt: bool, limit: int, **given: Any
) -> ExitStatus:
    """Scan a process again and again: one line per scan, and what grew since the one before.

    It ends after --count scans, when the process exits, or with Ctrl-C, and prints a summary. The
    exit status is 1 if any kind of leak is new or has grown since the first scan, 0 if not, and 3
    if no scan succeeded.
    """
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions"), baseline=None
    )
    format_ = formats.format_of(given.pop("format_"), json=given.pop("json_"), logfmt=logfmt)
    wanted = options.scan(given)._replace(contents=0)

    def once() -> LeakScan:
        with console.progress(wanted.verbose) as progress:
            return judge(scan(pid, wanted, progress, place))

    def show(event: Event) -> bool:
        return console.show(
            lambda style: reports.lines(reports.WATCH, format_.name, event, selection, style)
        )

    selection = reports.Selection(limit)
    with reached(wanted) as place:
        pid = place.resolve(process)
        place.check(pid)
        with place.life(pid) as life:
            return _run(Watch(life, once, every, count), show, every)


def _run(watch: Watch, show: Any, every: float) -> ExitStatus:
    told = False
    event: Event | None = None
    try:
        for event in watch.events():
            if not show(event):
                break
            if watch.is_late and not told:
                told = True
                console.talk(f"a scan takes longer than {every:g} s: scans are further apart")
    except KeyboardInterrupt:
        event = watch.end(Why.INTERRUPTED)
        show(event)
    end = event if isinstance(event, Ended) else watch.end(Why.INTERRUPTED)
    if end.change is None:
        return ExitStatus.FAILED
    return ExitStatus.LEAKS if end.change.grew else ExitStatus.CLEAN
