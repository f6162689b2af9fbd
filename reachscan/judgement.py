"""Which leaks count and which do not: the plain data of a review, without logic."""

from __future__ import annotations

from collections.abc import Mapping as ReadOnlyDict
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from reachscan.recording import model


class Tally(NamedTuple):
    """A number of blocks and their usable bytes; negative ones are differences."""

    allocations: int
    bytes: int

    def __add__(self, other: Any) -> Tally:
        return Tally(self.allocations + other.allocations, self.bytes + other.bytes)

    def __sub__(self, other: Any) -> Tally:
        return Tally(self.allocations - other.allocations, self.bytes - other.bytes)


NOTHING = Tally(0, 0)


class Rule(NamedTuple):
    """One line of a suppression file, and where it is."""

    text: str
    source: str
    reason: str


COUNTS, KNOWN, SUPPRESSED = range(3)
"""`Review.standing`: counts; is in the baseline and has not grown; is suppressed by a rule."""


class Review(NamedTuple):
    """Which groups count, and why the others do not. Those that count come first.

    Attributes:
        standing: of each group: `COUNTS`, `KNOWN` or `SUPPRESSED`.
        rules: the rules that were applied.
        rule: index of the rule that suppresses each group, -1 if none does.
        baseline: what the scan was compared with; None if there was no baseline.
        before: key -> its amount in the baseline, for groups that have grown.
        tallies: blocks of each standing, direct and indirect.
    """

    standing: NDArray[np.uint8]
    rules: tuple[Rule, ...]
    rule: model.Indexes
    baseline: str | None
    before: ReadOnlyDict[str, Tally]
    tallies: tuple[Tally, Tally, Tally]
