"""Options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from reachscan.capture.options import ScanOptions
from reachscan.cli import console
from reachscan.cli.commands import durations, formats, leaks, paths
from reachscan.cli.commands.decorators import together
from reachscan.cli.console import Output
from reachscan.recording.architectures import ADDRESS_END
from reachscan.reports import Selection

MAX_CONTENTS = 4096
MAX_PAUSE = 60 * 60 * 1000

process = click.argument("process", metavar="PID|NAME")

json = click.option("--json", "json_", is_flag=True, help="Report what was done as JSON.")

on = click.option(
    "--on",
    metavar="WHERE",
    help="The process is on another machine: ssh:HOST, docker:NAME, podman:NAME, nerdctl:NAME, "
    "adb:SERIAL, kubectl:POD, or exec:COMMAND, which runs a shell there.",
)

elsewhere = together(
    on,
    click.option(
        "--sysroot",
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="With --on: folder that holds copies of that machine's files (default: needed files "
        "are fetched and kept).",
    ),
)
"""Options: where the process is. Passed to `scan`."""

verbose = click.option("-v", "--verbose", is_flag=True, help="Show what each step does and costs.")

destination = click.option(
    "-o", "--output", type=paths.WRITABLE, help="Write the report to this file; - means stdout."
)


def _defaults(of: str) -> str:
    """Return the default of a field of `Selection`."""
    usual = getattr(Selection(), of)
    found = {name: getattr(each, of) for name, each in formats.FORMATS.items() if not each.profile}
    others = [f", in {name} {value}" for name, value in found.items() if value != usual]
    return f"{usual}{''.join(others)}"


limit = click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"Rows listed (default {_defaults('limit')}); totals always cover all.",
)

contents = click.option(
    "--contents",
    type=click.IntRange(0, MAX_CONTENTS),
    metavar="BYTES",
    help=f"Show this many bytes of each block (default {_defaults('contents')}); "
    "0 keeps user data out.",
)

candidates = click.option(
    "--candidates",
    is_flag=True,
    help="Search all debug information for structs that blocks could be; large files take seconds.",
)

WEIGHTS = ("bytes", "count")

profile = together(
    click.option(
        "--weight",
        type=click.Choice(WEIGHTS),
        help="Weigh the stacks of a profile by bytes (default) or by number of blocks.",
    ),
    click.option(
        "--per-thread",
        is_flag=True,
        help="Begin each stack of a profile with the name of the thread that allocated.",
    ),
)
"""Options: what a profile shows. Passed to `output`."""

report = together(
    limit,
    click.option("--all", "every_block", is_flag=True, help="Also list every leaked block."),
    contents,
    candidates,
)
"""Options: how much a report shows. Passed to `output`."""


def _address(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse an address in the target; None stays None."""
    if value is None:
        return None
    try:
        address = int(value, 0)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not an address; write it like 0x55d0c8a41230, or in decimal"
        ) from None
    if not 0 < address < ADDRESS_END:
        raise click.BadParameter(
            f"{value} is out of range: addresses go from 0x1 to {ADDRESS_END - 1:#x}"
        )
    return address


address = click.argument("address", metavar="ADDRESS", callback=_address)

root = click.option(
    "--root",
    "--sysroot",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    default="/",
    help="Folder that holds the files that the process had mapped (default /).",
)

about = together(
    click.option(
        "--explain",
        metavar="ADDRESS",
        callback=_address,
        help="Show what keeps the block there, as `explain` does.",
    ),
    click.option(
        "--refs",
        metavar="ADDRESS",
        callback=_address,
        help="List what points to the block there, as `refs` does.",
    ),
)
"""Options: questions about one block."""

save = click.option(
    "--save",
    type=paths.SAVED,
    metavar="FILE.rsc",
    help="Keep the raw scan for `reachscan report`; packed if the name ends in `.gz`.",
)

search = together(
    click.option(
        "--threads",
        type=click.IntRange(1, 256),
        metavar="N",
        help="Threads that search the heap (default: one for each processor).",
    ),
    click.option(
        "--nice",
        type=click.IntRange(0, 19),
        metavar="N",
        default=0,
        help="Niceness of the search, during which the process runs on.",
    ),
    click.option(
        "--timeout",
        type=durations.SECONDS,
        metavar="SECONDS",
        help="Give up after this time, and let the process go on.",
    ),
)
"""Options: how memory is searched. Passed to `scan`."""

capture = together(
    click.option(
        "--method",
        type=click.Choice(("auto", "clone", "copy", "track", "live")),
        default="auto",
        help="How memory is captured; auto tries clone, then copy, then live. track stops a large "
        "process for the shortest time, but needs as much memory again.",
    ),
    search,
    click.option(
        "--max-pause",
        type=click.IntRange(1, MAX_PAUSE),
        metavar="MS",
        help="Never stop the process for longer than this at a time (default 1000). auto picks a "
        "method that is expected to keep to it, or refuses before it stops anything.",
    ),
)
"""Options: how a process is scanned. Passed to `scan`."""

python = click.option(
    "--python",
    is_flag=True,
    help="Also find leaked Python objects: those whose reference count is too high.",
)

confirm = together(
    click.option(
        "--confirm",
        type=click.IntRange(1, 100),
        metavar="N",
        default=1,
        help="Scan N times; only blocks that are leaked and unchanged in all scans are definite.",
    ),
    click.option(
        "--confirm-every",
        type=durations.Seconds(0, 3600),
        metavar="SECONDS",
        help="Time between the scans of --confirm (default 1).",
    ),
)
"""Options: how certain a leak must be. Passed to `scan`."""

thorough = click.option(
    "--thorough",
    is_flag=True,
    help="Scan up to 5 times, a second apart, while the process does anything; also report what "
    "only an earlier scan found lost, as possible.",
)
"""Option: whether to look at several moments. Passed to `scan`."""

suppress = together(
    click.option(
        "--suppressions",
        "suppression_files",
        type=paths.READABLE,
        metavar="FILE",
        multiple=True,
        help="List of known leaks that do not count; may be repeated.",
    ),
    click.option(
        "--default-suppressions/--no-default-suppressions",
        default=True,
        help="Leave out blocks that runtimes leak once, by design (the default).",
    ),
)

review = together(
    suppress,
    click.option(
        "--baseline",
        type=paths.READABLE,
        metavar="FILE",
        help="Earlier scan or JSON report; only leaks that are new or have grown since count.",
    ),
)
"""Options: which leaks count. Passed to `judge`."""

strict = click.option(
    "--strict", is_flag=True, help="Exit with status 1 even if all leaks are only possible ones."
)


JUDGING = "--strict, --suppressions and --baseline decide which leaks count"
"""What to say where there are no leaks to judge."""


def judges(given: dict[str, Any], *, strict: bool) -> bool:
    """Return whether the options given to a command decide which leaks count."""
    return bool(strict or given["suppression_files"] or given["baseline"])


def judge(
    suppression_files: tuple[Path, ...], default_suppressions: bool, baseline: Path | None
) -> leaks.Judge:
    """Return the function that decides which groups count. Reads its files before any scan.

    Raises:
        ReachscanError: a file cannot be read or makes no sense.
    """
    if default_suppressions and not suppression_files and not baseline:
        return leaks.without_default_suppressions
    from reachscan.history import census, suppressions
    from reachscan.history.review import review

    rules = [rule for file in suppression_files for rule in suppressions.read(file)]
    if default_suppressions:
        rules += suppressions.read(suppressions.DEFAULT, "default")
    known = census.read(baseline) if baseline else None
    return lambda result: review(result, rules, known)


def taken(given: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove some options from those given to a command, and return them."""
    return {name: given.pop(name) for name in names}


def scan(given: dict[str, Any]) -> ScanOptions:
    """Remove the scan options from those given to a command, and return them.

    `contents` stays: its default depends on the format of the report, see `output`.
    """
    names = [name for name in ScanOptions._fields if name in given and name != "contents"]
    values = taken(given, *names)
    if values.get("confirm_every") is None:
        values.pop("confirm_every", None)
    elif values["confirm"] == 1:
        raise click.UsageError("--confirm-every is the time between the scans of --confirm N")
    wanted = ScanOptions(**values)
    if wanted.sysroot is not None and wanted.on is None:
        raise click.UsageError("--sysroot is for --on; here, files are those that the process sees")
    if wanted.thorough and wanted.confirm > 1:
        raise click.UsageError(
            "--thorough reports what any scan found, --confirm what all of them did; give one"
        )
    if wanted.thorough and wanted.method == "live":
        raise click.UsageError(
            "--thorough needs memory of one moment, so it excludes --method live"
        )
    return wanted


def output(
    format_: str | None,
    json_: bool,
    output: Path | None,
    limit: int | None = None,
    every_block: bool = False,
    contents: int | None = None,
    weight: str | None = None,
    per_thread: bool = False,
    candidates: bool = False,
) -> Output:
    """Return where a report goes and what it looks like.

    The options are those of `formats.one_of`, `destination`, `report` and `profile`.

    Raises:
        click.UsageError: they contradict each other, or the file cannot be written.
    """
    wanted = formats.format_of(format_, json=json_)
    output = None if output == paths.STDOUT else output
    if wanted.file and not output and console.is_for_terminal():
        raise click.UsageError(f"{wanted.name} is not for a terminal; add -o {wanted.file}")
    if (weight or per_thread) and not wanted.weighted:
        profiles = ", ".join(name for name, each in formats.FORMATS.items() if each.weighted)
        raise click.UsageError(f"--weight and --per-thread are for profiles: --format {profiles}")
    everything = sys.maxsize if every_block else wanted.limit
    selection = Selection(
        limit=everything if limit is None else limit,
        contents=wanted.contents if contents is None else contents,
        every_block=every_block,
        all_stacks=every_block or wanted.profile,
        weight=weight or WEIGHTS[0],
        per_thread=per_thread,
        candidates=candidates,
    )
    return Output(wanted.name, output, selection)
