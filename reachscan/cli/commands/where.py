"""`reachscan where`: finds out who allocates what a running process leaks."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

import click

from reachscan import reports
from reachscan.capture import interrupts
from reachscan.capture.options import ScanOptions
from reachscan.capture.place import Place
from reachscan.capture.recording_options import RecordingOptions
from reachscan.cli import console
from reachscan.cli.commands import durations, formats, leaks, options, recording
from reachscan.errors import ExitStatus, TargetGoneError
from reachscan.scanning import reached, scan


@click.command("where")
@options.process
@options.elsewhere
@click.option(
    "--for",
    "seconds",
    type=durations.SECONDS,
    metavar="SECONDS",
    default=30.0,
    help="How long to record (default 30); Ctrl-C ends it early.",
)
@recording.recording
@formats.one_of(reports.LEAKS)
@options.destination
@options.report
@options.profile
@options.review
@options.strict
@options.capture
@options.save
@options.verbose
def command(process: str, seconds: float, strict: bool, **given: Any) -> ExitStatus:
    """Find out who allocates what a running process leaks.

    Scans it, records for a while only blocks of the sizes that leak (or of --sizes), and reports
    the blocks that were allocated and lost meanwhile, with their stacks.
    """
    record = recording.options_of_attached(given)
    wanted = options.scan(given)
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    output = options.output(**given)
    wanted = wanted._replace(contents=output.selection.contents)
    with reached(wanted) as place:
        pid = place.resolve(process)
        from reachscan.history import hunting

        known = None
        if not record.sizes:
            record, known = _with_sizes(place, pid, record, wanted, judge)

        with _RecordingTime() as patience, hunting.recorded(place, pid, record, wanted):
            if not record.sizes:
                console.talk("nothing leaks so far: blocks of all sizes are recorded")
            patience.wait(place, pid, seconds)
            wanted = wanted._replace(recorded_only=True, known_leaks=known)
            result = leaks.judged(place, str(pid), wanted, output, judge)
            if result.recording.recorder is None:
                raise TargetGoneError(
                    f"process {pid} is no longer recorded: it executed another program, or "
                    "`reachscan detach` took the recorder out of it",
                    "start `reachscan where` again",
                )
            # Reported now, so it is not lost if the recorder cannot be removed.
            output.report(result)
    if result.save_error:
        raise result.save_error
    return ExitStatus.LEAKS if hunting.is_unseen(result) else leaks.status(result, strict)


def _with_sizes(
    place: Place, pid: int, record: RecordingOptions, wanted: ScanOptions, judge: leaks.Judge
) -> tuple[RecordingOptions, frozenset[tuple[int, int]]]:
    """Return options that record the sizes that leak now, even of leaks that do not count.

    And these leaks.
    """
    with console.progress(wanted.verbose) as progress:
        result = judge(scan(pid, wanted._replace(save=None), progress, place))
    if not result.recording.totals.leaked:
        return record, frozenset()
    from reachscan.history import hunting

    return record._replace(sizes=hunting.sizes(result)), hunting.known(result)


class _RecordingTime:
    """Once the recorder is in the process, Ctrl-C only ends the recording time."""

    def __init__(self) -> None:
        self._waits = self._is_over = False

    def __enter__(self) -> _RecordingTime:
        self._before = {n: signal.signal(n, self._interrupt) for n in interrupts.signals()}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def wait(self, place: Place, pid: int, seconds: float) -> None:
        """Wait `seconds`, or until Ctrl-C; the next Ctrl-C interrupts as usual.

        Raises:
            TargetGoneError: the process exited.
        """
        ended = False
        with place.life(pid) as life:
            try:
                self._waits = True
                ended = not self._is_over and life.ends_within(seconds)
            except KeyboardInterrupt:
                console.end_line()
                self._is_over = True
            finally:
                self._waits = False
            if self._is_over:
                place.interrupted()
        self._restore()
        if ended:
            raise TargetGoneError(f"process {pid} ended while its allocations were recorded")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._waits:
            signal.default_int_handler(number, frame)
        self._is_over = True
