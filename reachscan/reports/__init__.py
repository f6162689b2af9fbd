"""Reports: one file per format, each a function from a scan result to lines of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """How much of a scan goes into a report.

    Attributes:
        limit: groups listed; totals always cover all.
        contents: bytes shown of the example of each group.
        every_block: list every leaked block too.
    """

    limit: int = 20
    contents: int = 32
    every_block: bool = False
