"""Reports: one file per format, each a function from a scan result to lines of text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from reachscan.result import ScanResult

FORMATS = ("text", "json", "logfmt", "html")

USUAL_WIDTH = 100


class Style(NamedTuple):
    """What a report for people looks like.

    Attributes:
        paint: takes a text and what it is: `headline`, `good`, `dim` or `warning`.
        width: columns of a line.
    """

    paint: Callable[[str, str], str] = lambda text, _: text
    width: int = USUAL_WIDTH

    def __call__(self, text: str, what: str) -> str:
        """Return a text as it shall be shown."""
        return self.paint(text, what)


plain = Style()
"""Without colours, for files."""


class Selection(NamedTuple):
    """How much of a scan goes into a report.

    Attributes:
        limit: groups listed; totals always cover all.
        contents: bytes shown of the example of each group.
        every_block: list every leaked block too.
    """

    limit: int = 20
    contents: int = 32
    every_block: bool = False


def lines(
    format_: str, result: ScanResult, selection: Selection, style: Style = plain
) -> Iterator[str]:
    """Yield the lines of a report, without line ends.

    Args:
        format_: one of `FORMATS`; html is for leaks and for the heap.
        result: what to report.
        selection: how much of it.
        style: what text looks like.
    """
    recording = result.recording
    # Each format is imported by those only who want it.
    if recording.block is not None:
        from reachscan.reports import explain

        return explain.lines(format_, result, recording.block, selection, style)
    if recording.kinds is not None:
        from reachscan.reports import heap

        return heap.lines(format_, result, recording.kinds, selection, style)
    if format_ == "json":
        from reachscan.reports import leaks_json

        return leaks_json.lines(result, selection)
    if format_ == "logfmt":
        from reachscan.reports import leaks_logfmt

        return leaks_logfmt.lines(result, selection)
    if format_ == "html":
        from reachscan.reports import leaks_html

        return leaks_html.lines(result, selection)
    from reachscan.reports import leaks_text

    return leaks_text.lines(result, selection, style)
