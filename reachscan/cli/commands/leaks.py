"""Scans a process for leaks and reports them: `reachscan PID`, with options or without.

Only what every scan needs is imported here; the rest takes longer to load than a scan takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from reachscan import reports
from reachscan.capture.options import ScanOptions
from reachscan.cli import console
from reachscan.cli.console import Output, Part
from reachscan.errors import ExitStatus, ReachscanError
from reachscan.reports import Style
from reachscan.result import BlockAnswer, LeakScan, ScanResult
from reachscan.scanning import reached, scan

if TYPE_CHECKING:
    from reachscan.capture.place import Place
    from reachscan.capture.sysroot import Sysroot

Judge = Callable[[LeakScan], LeakScan]
"""Decides which leaks count."""

USUAL, TEXT = ScanOptions(), Output()
"""The defaults: how to scan, and what to write."""


def without_default_suppressions(result: LeakScan) -> LeakScan:
    """Return the scan with the leaks suppressed that runtimes leak by design."""
    if not result.folded:
        return result
    from reachscan.history import suppressions
    from reachscan.history.review import review

    return review(result, suppressions.read(suppressions.DEFAULT, "default"))


def find(
    process: str,
    wanted: ScanOptions = USUAL,
    output: Output = TEXT,
    judge: Judge = without_default_suppressions,
    *,
    strict: bool = False,
) -> ExitStatus:
    """Scan a process, report its leaks, and return the exit status.

    Args:
        process: its id, or its name if that is unique.
        wanted: how to scan.
        output: where the report goes and what it looks like.
        judge: decides which leaks count.
        strict: see `status`.

    Raises:
        ReachscanError: the scan failed, or the report or raw scan could not be written.
    """
    with reached(wanted) as place:
        result = judged(place, process, wanted, output, judge)
    output.report(result)
    if result.save_error:
        raise result.save_error
    return status(result, strict)


def find_each(
    name: str, wanted: ScanOptions, output: Output, judge: Judge, *, strict: bool
) -> ExitStatus:
    """Scan all processes of a name one after another, and report on them in this order.

    If a process cannot be scanned, stderr says why, and the next one is scanned.

    Returns:
        the most severe exit status of these scans.

    Raises:
        OutputError: the reports could not be written.
    """
    with reached(wanted) as place:
        pids = place.find(name)
        return _find_in_turn(place, pids, wanted, output, judge, strict=strict)


def _find_in_turn(
    place: Place,
    pids: Sequence[int],
    wanted: ScanOptions,
    output: Output,
    judge: Judge,
    *,
    strict: bool,
) -> ExitStatus:
    worst = ExitStatus.CLEAN

    def parts(style: Style) -> Iterator[Part]:
        nonlocal worst
        reported = False
        for pid in pids:
            try:
                result = judged(place, str(pid), wanted, output, judge)
            except ReachscanError as error:
                console.report_error(error)
                worst = max(worst, error.exit_status)
                continue
            worst = max(worst, status(result, strict))
            if reported and reports.FORMATS[reports.LEAKS][output.format].gap:
                yield ""
            reported = True
            yield from output.parts(result, style)

    output.write(parts, private=output.selection.contents > 0)
    return worst


def judged(
    place: Place, process: str, wanted: ScanOptions, output: Output, judge: Judge
) -> LeakScan:
    """Scan a process, and decide which of its leaks count."""
    with console.progress(wanted.verbose) as progress:
        result = judge(scan(process, wanted, progress, place))
        root = place.sysroot(result.recording, progress)
        result = with_details(result, output, root=root)
    if wanted.verbose:
        console.print_steps(result)
    return result


@overload
def with_details(result: LeakScan, output: Output, *, root: Sysroot) -> LeakScan: ...
@overload
def with_details(result: ScanResult, output: Output, *, root: Sysroot) -> ScanResult: ...


def with_details(result: ScanResult, output: Output, *, root: Sysroot) -> ScanResult:
    """Return the scan with type candidates of its groups, and source lines of their stacks."""
    if isinstance(result, LeakScan) and not result.folded:
        return result
    from reachscan import analyse

    wanted = output.selection
    if isinstance(result, BlockAnswer):
        return analyse.with_source_lines(result, None, root=root)
    result = analyse.with_candidates(result, wanted.limit, root=root, thorough=wanted.candidates)
    return analyse.with_source_lines(result, None if wanted.all_stacks else wanted.limit, root=root)


def status(result: LeakScan, strict: bool) -> ExitStatus:
    """Return the exit status of a scan; if `strict`, possible leaks count."""
    if not result.counted.allocations:
        return ExitStatus.CLEAN
    return ExitStatus.LEAKS if strict or result.counts_definite else ExitStatus.CLEAN
