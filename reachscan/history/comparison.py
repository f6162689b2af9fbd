"""Compares two scans, key by key."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from reachscan import errors
from reachscan.history import census
from reachscan.history.census import Census
from reachscan.judgement import NOTHING, Tally
from reachscan.recording import model
from reachscan.result import ScanResult


class What(enum.Enum):
    """How a key has changed."""

    NEW = "new"
    GROWN = "grown"
    SHRUNK = "shrunk"
    GONE = "gone"


WORSE = (What.NEW, What.GROWN)
_HOLDS = {census.LEAKS: "leaks", census.HEAP: "all live blocks"}


@dataclass(frozen=True)
class Change:
    """A key whose amount has changed."""

    what: What
    key: str
    old: Tally
    new: Tally

    @property
    def by(self) -> Tally:
        """The increase; negative for a decrease."""
        return self.new - self.old


@dataclass(frozen=True)
class Comparison:
    """The changes from one scan to another.

    Attributes:
        changes: by growth: the largest increase first, the largest decrease last.
        unchanged: number of keys without a change.
        unclear: number of keys that only one side lists, while the other leaves groups out.
        warnings: why the comparison may mislead.
    """

    old: Census
    new: Census
    changes: tuple[Change, ...]
    unchanged: int
    unclear: int
    warnings: tuple[model.Warning, ...]

    def __repr__(self) -> str:
        """Return one line: there may be thousands of kinds."""
        return (
            f"<Comparison of {self.old.source} with {self.new.source}: "
            f"{len(self.changes)} kinds changed, {self.unchanged} did not>"
        )

    @property
    def by(self) -> Tally:
        """The total increase; negative for a decrease."""
        return self.new.total - self.old.total

    def numbers(self) -> dict[What, int]:
        """Return the number of keys for each kind of change."""
        found = Counter(change.what for change in self.changes)
        return {what: found[what] for what in What}

    @property
    def grew(self) -> bool:
        """Whether anything is new or has grown; totals reveal groups that are not listed."""
        hidden = self.unclear or self.old.unlisted or self.new.unlisted
        listed = any(change.what in WORSE for change in self.changes)
        return listed or bool(hidden and max(self.by) > 0)


def diff(old: str | Path | ScanResult, new: str | Path | ScanResult) -> Comparison:
    """Compare two scans: what leaks more, or less?

    Example:
        >>> found = reachscan.diff("day1.rsc", "day2.rsc")
        >>> found
        <Comparison of day1.rsc with day2.rsc: ... kinds changed, ... did not>
        >>> [(change.what.name, change.key, change.by.bytes) for change in found.changes]
        [...]

    Args:
        old: the earlier scan, or a file with it: a saved stream or a JSON report.
        new: the later scan.

    Raises:
        OutputError: a file cannot be read.
        ReachscanError: a file is of another kind or damaged, or the subjects differ.
    """
    return compare(_census_of(old), _census_of(new))


def _census_of(scan: str | Path | ScanResult) -> Census:
    if isinstance(scan, (str, Path)):
        return census.read(Path(scan))
    source = f"pid {scan.recording.target.pid}"
    return census.take(census.comparable(scan, source), source)


def compare(old: Census, new: Census) -> Comparison:
    """Compare two scans of one program.

    Raises:
        ReportFileError: one is about leaks, the other about the heap.
    """
    if old.about != new.about:
        raise errors.ReportFileError(
            f"{old.source} lists {_HOLDS[old.about]}, and {new.source} lists {_HOLDS[new.about]}",
            "compare two scans for leaks, or two of the heap",
        )
    changes: list[Change] = []
    unchanged = unclear = 0
    for key in old.tallies.keys() | new.tallies.keys():
        before, now = old.tallies.get(key), new.tallies.get(key)
        if (before is None and old.unlisted) or (now is None and new.unlisted):
            unclear += 1
        elif before == now:
            unchanged += 1
        else:
            before, now = before or NOTHING, now or NOTHING
            changes.append(Change(_what(before, now), key, before, now))
    changes.sort(key=lambda change: (-change.by.bytes, -change.by.allocations, change.key))
    return Comparison(old, new, tuple(changes), unchanged, unclear, tuple(_warnings(old, new)))


def _what(old: Tally, new: Tally) -> What:
    if old == NOTHING:
        return What.NEW
    if new == NOTHING:
        return What.GONE
    # More blocks with fewer bytes are growth, too: the program still loses blocks.
    return What.GROWN if max(new - old) > 0 else What.SHRUNK


def _warnings(old: Census, new: Census) -> list[model.Warning]:
    warnings: list[model.Warning] = []
    if old.program != new.program:
        message = f"these are different programs: {old.program} and {new.program}"
        warnings.append(model.Warning("different-programs", message))
    if old.method != new.method:
        message = (
            f"the scans were made in different ways ({old.method} and {new.method}), "
            "which may account for some of the difference"
        )
        warnings.append(model.Warning("different-methods", message))
    for side in (old, new):
        if side.unlisted:
            message = (
                f"{side.source} leaves out {side.unlisted} of its groups, so that what the "
                "other lists may be missing here for that reason alone; totals cover all. Make the "
                "report with --all, or --limit "
                f"{side.unlisted + len(side.tallies)}, or compare raw scans (--save)"
            )
            warnings.append(model.Warning("groups-left-out", message))
    return warnings
