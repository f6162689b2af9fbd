"""What a scan came to: a recording, how its leaks fold, and what of it counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from reachscan.judgement import COUNTS, Review, Tally

# What takes long to load is imported where it is needed: many scans find nothing.
if TYPE_CHECKING:
    from reachscan import errors
    from reachscan.grouping.groups import Folding, Group
    from reachscan.naming.private_memory import PrivateMemory
    from reachscan.recording import model


class LeakedBlock(NamedTuple):
    """One block; `size` in usable bytes, `reason` as in `Leaks`, `group` an index."""

    address: int
    size: int
    is_direct: bool
    reason: int
    group: int

    @property
    def kind(self) -> str:
        """What reports call it."""
        return "direct" if self.is_direct else "indirect"


class ScanResult(NamedTuple):
    """A recording and how its leaks fold.

    Attributes:
        folded: `folding` if there is anything to fold.
        memory: what the private memory of the process is, None if the stream does not tell.
        candidates: index of a group -> structs that its blocks could be, the likeliest first.
        review: which groups count, None if all do because nobody said which do not.
        save_error: why the raw stream could not be kept, None if it was or was not wanted.
    """

    recording: model.Recording
    folded: Folding | None
    save_error: errors.OutputError | None = None
    review: Review | None = None
    memory: PrivateMemory | None = None
    candidates: Mapping[int, tuple[str, ...]] = MappingProxyType({})

    @property
    def holds_something(self) -> bool:
        """Whether there is anything to report: leaks, live blocks or an answer."""
        return self.folded is not None

    @property
    def folding(self) -> Folding:
        """How the leaks fold."""
        if self.folded:
            return self.folded
        from reachscan.grouping import folding

        return folding.fold(self.recording, {}, {})

    @property
    def subject(self) -> str:
        """What reports call what was asked."""
        if self.recording.block is not None:
            return "explain"
        return "leaks" if self.recording.kinds is None else "heap"

    @property
    def is_about_leaks(self) -> bool:
        """Whether leaks were searched, and not the heap or one block looked at."""
        return self.recording.kinds is None and self.recording.block is None

    @property
    def counted(self) -> Tally:
        """What counts: all leaks but those that are suppressed, or known from a baseline."""
        if self.review:
            return self.review.tallies[COUNTS]
        return Tally(self.recording.totals.leaked, self.recording.totals.leaked_bytes)

    @property
    def counts_definite(self) -> bool:
        """Whether anything counts that is leaked for certain."""
        from reachscan.recording import model

        if self.review:
            counting = self.folding.reason[self.review.standing == COUNTS]
            return bool((counting == model.DEFINITE).any())
        return bool((self.recording.leaks.reason == model.DEFINITE).any())

    @property
    def groups_counted(self) -> int:
        """How many groups count; those are the first ones."""
        if self.review:
            return int((self.review.standing == COUNTS).sum())
        return len(self.folding.example)

    @property
    def possible(self) -> tuple[int, int]:
        """Allocations and bytes of the leaks that are only possible."""
        from reachscan.recording import model

        leaks = self.recording.leaks
        sizes = leaks.size[leaks.reason != model.DEFINITE]
        return len(sizes), int(sizes.sum())

    def blocks(self) -> Iterator[LeakedBlock]:
        """Yield every leaked block, in the order of the stream."""
        from reachscan.recording import model

        leaks = self.recording.leaks
        direct = leaks.parent == model.DIRECT
        columns = (leaks.address, leaks.size, direct, leaks.reason, self.folding.group_of_leak)
        yield from map(LeakedBlock._make, zip(*(c.tolist() for c in columns), strict=True))

    def groups(self, limit: int, rows: int = 20) -> list[Group]:
        """Return the largest groups, largest first.

        Args:
            limit: how many at most.
            rows: how many rows of its histogram and of its tree each has at most; those that sum
                up the rest come on top.
        """
        from reachscan.grouping import folding

        found = folding.groups(self.recording, self.folding, limit, rows)
        for i in self.candidates.keys() & set(range(len(found))):
            found[i] = found[i]._replace(candidates=self.candidates[i])
        return found
