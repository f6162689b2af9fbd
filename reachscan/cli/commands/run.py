"""`reachscan run`: starts a command that records who allocates what, and reports at its end."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from reachscan import reports
from reachscan.capture.launch import Event, Launch
from reachscan.cli import console
from reachscan.cli.commands import durations, formats, leaks, options, paths, recording
from reachscan.errors import ExitStatus, ReachscanError

_USAGE = "[OPTIONS] -- COMMAND [ARGUMENT]..."


class _Run(click.Command):
    """Takes the command that follows `--`, so its options are not taken for ours."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        wants_help = bool({"-h", "--help"} & set(args))
        if "--" not in args and not wants_help and not context.resilient_parsing:
            raise click.UsageError(
                "put -- before the command: reachscan run [OPTIONS] -- COMMAND", context
            )
        rest = super().parse_args(context, args)
        for word in (context.params.get("words") or ())[:1]:
            program = shutil.which(word)
            if program:
                paths.note(Path(program), "COMMAND", context, written=False)
        return rest

    def collect_usage_pieces(self, _: click.Context) -> list[str]:
        return [_USAGE]


_END_NOT_SEEN = (
    "the recorder did not see its end: it ended by a system call of its own, as Go programs do, "
    "or became a program that was started without LD_PRELOAD or is linked statically; --every, "
    "--at and --signal report while it runs"
)
_CONFINED = (
    "it confined itself by a seccomp filter, and the recorder makes no system call from then on, "
    "not even to announce the end; --every and --at report while it runs"
)


@click.command("run", cls=_Run)
@click.argument("words", metavar="COMMAND", nargs=-1, type=click.UNPROCESSED, required=True)
@recording.recording
@click.option(
    "--every",
    type=durations.SECONDS,
    metavar="SECONDS",
    help="Report again and again while the command runs.",
)
@click.option(
    "--at",
    type=recording.Size(least=1),
    metavar="SIZE",
    help="Report each time that the resident memory of the command grows past SIZE.",
)
@click.option(
    "--signal",
    "asking",
    type=recording.Signal(),
    metavar="NAME",
    default=0,
    help="Report each time that this signal is sent to the command, which does not get it.",
)
@click.option(
    "--error-exitcode",
    type=click.IntRange(0, 255),
    metavar="N",
    default=int(ExitStatus.LEAKS),
    help="Exit with status N instead of 1 if there are leaks.",
)
@formats.one_of(reports.LEAKS)
@options.destination
@options.report
@options.review
@options.strict
@options.capture
@options.verbose
def command(
    words: tuple[str, ...],
    every: float | None,
    at: int | None,
    asking: int,
    error_exitcode: int,
    strict: bool,
    **given: Any,
) -> int:
    """Run a command that records its allocations, and report its leaks at its end.

    Reports go to stderr, or where -o says, one after the other; -o - is the stdout of the command.
    The exit status is that of the command (128+N if signal N ended it); if that is 0, it is 1 for
    leaks, and 3 if there is no last report. 126: the command cannot be executed, 127: it is not
    there.
    """
    record = recording.options_of(given)
    wanted = options.scan(given)
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    shares_stdout = given["output"] == paths.STDOUT
    output = options.output(**given)
    wanted = wanted._replace(contents=output.selection.contents)
    if reports.FORMATS[reports.LEAKS][output.format].file and (
        every or at or asking or not output.path
    ):
        raise click.UsageError(
            f"--format {output.format} makes a file of one report; name it with -o, and leave out "
            "--every, --at and --signal"
        )
    beside = console.open_beside(output, shares_stdout=shares_stdout)
    found = None
    with Launch(words, record, asking) as launch:
        shown = console.beside_command(output, beside)
        for event in launch.events(every, at):
            try:
                status = leaks.find(str(launch.pid), wanted, shown, judge, strict=strict)
            except ReachscanError as error:
                console.report_error(error)
                status = error.exit_status
            if event is Event.ENDING:
                found = status
                if not launch.is_recorded:
                    console.talk(
                        "the command was not recorded: it got no memory for the tables; "
                        "give it less with --memory"
                    )
        own = launch.status()
    if found is None:
        killer = launch.killer()
        unseen = _CONFINED if launch.was_confined else _END_NOT_SEEN
        why = f"signal {killer} ended it" if killer else unseen
        console.talk(f"the command ended without a report: {why}")
        found = ExitStatus.FAILED
    return own or (error_exitcode if found == ExitStatus.LEAKS else int(found))
