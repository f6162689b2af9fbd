"""`reachscan core`: what had a process leaked when its core file was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reachscan import reports
from reachscan.capture.options import LEAKS, Question
from reachscan.cli import console
from reachscan.cli.commands import formats, leaks, options, paths
from reachscan.errors import ExitStatus
from reachscan.result import LeakScan
from reachscan.scanning import core


@click.command("core")
@click.argument("file", type=paths.READABLE)
@options.root
@click.option("--heap", is_flag=True, help="Show what the live heap is made of, as `heap` does.")
@options.about
@formats.one_of(reports.LEAKS, reports.HEAP, reports.EXPLAIN)
@options.destination
@options.report
@options.profile
@options.review
@options.strict
@options.python
@options.search
@options.save
@options.verbose
def command(
    file: Path,
    heap: bool,
    explain: int | None,
    refs: int | None,
    strict: bool,
    **given: Any,
) -> ExitStatus:
    """Find what a process had leaked when its core file was written.

    FILE is what `gcore`, the kernel or systemd-coredump wrote; it may be compressed with zstd, lz4,
    xz or gzip. The process need not exist any more.

    \b
      reachscan core core.4711
      reachscan core /var/lib/systemd/coredump/core.nginx.33.zst --json
      reachscan core core.4711 --root /srv/images/debian12
      reachscan core core.4711 --explain 0x55d0c8a41230
    """
    question = _question(heap, explain, refs)
    if question != LEAKS and options.judges(given, strict=strict):
        raise click.UsageError(
            f"{options.JUDGING}; leave them out with --heap, --explain and --refs"
        )
    judge = options.judge(
        **options.taken(given, "suppression_files", "default_suppressions", "baseline")
    )
    wanted = options.scan(given)
    if wanted.python and heap:
        raise click.UsageError("--python is about leaks, --explain and --refs, not about --heap")
    output = options.output(**given)
    subject = reports.EXPLAIN if question.address else question.about
    if output.format not in reports.FORMATS[subject]:
        raise click.UsageError(reports.unknown(subject, output.format, reports.FORMATS[subject]))
    wanted = wanted._replace(contents=output.selection.contents, question=question)
    with console.progress(wanted.verbose) as progress:
        result = core(file, wanted, progress)
        if isinstance(result, LeakScan):
            result = judge(result)
        result = leaks.with_details(result, output, root=wanted.root)
    if wanted.verbose:
        console.print_steps(result)
    output.report(result)
    if result.save_error:
        raise result.save_error
    return leaks.status(result, strict) if isinstance(result, LeakScan) else ExitStatus.CLEAN


def _question(heap: bool, explain: int | None, refs: int | None) -> Question:
    asked = [Question("heap")] if heap else []
    asked += [Question("explain", explain)] if explain is not None else []
    asked += [Question("refs", refs)] if refs is not None else []
    if len(asked) > 1:
        raise click.UsageError("--heap, --explain and --refs are different questions; ask one")
    return asked[0] if asked else LEAKS
