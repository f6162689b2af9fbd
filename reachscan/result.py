"""The result of a scan: its leaks, the kinds of live blocks, or an answer about one block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Union

from reachscan.judgement import COUNTS, Review, Tally
from reachscan.recording.zip_equal import zip_equal

# Slow modules are imported where they are needed: many scans find nothing.
if TYPE_CHECKING:
    from typing import TypeAlias

    from reachscan import errors
    from reachscan.grouping.groups import Folding, Group
    from reachscan.naming.private_memory import PrivateMemory
    from reachscan.recording import model

Candidates: TypeAlias = "Mapping[int, tuple[str, ...]]"
NONE: Candidates = MappingProxyType({})


class LeakedBlock(NamedTuple):
    """One block; `size` in usable bytes, `group` an index."""

    address: int
    size: int
    is_direct: bool
    reason: model.Reason
    group: int

    @property
    def kind(self) -> str:
        """What reports call it."""
        return "direct" if self.is_direct else "indirect"


class LeakScan(NamedTuple):
    """A search for leaks.

    Attributes:
        recording: the decoded stream, with names.
        folded: how the leaks fold, None if there are none.
        memory: what the private memory of the process consists of; None if the stream does not say.
        save_error: why the raw stream could not be saved; None if it was, or need not be.
        review: which groups count; None if all do, for lack of rules and a baseline.
        candidates: index of a group -> structs that its blocks could be, most likely first.
        remarks: warnings about the review and the candidates.
    """

    recording: model.Recording
    folded: Folding | None
    memory: PrivateMemory | None
    save_error: errors.OutputError | None = None
    review: Review | None = None
    candidates: Candidates = NONE
    remarks: tuple[model.Warning, ...] = ()

    def __repr__(self) -> str:
        """Return one line: a scan may hold megabytes."""
        return f"<LeakScan: {self.recording!r}>"

    @property
    def subject(self) -> str:
        """The name of the question in reports."""
        return "leaks"

    @property
    def warnings(self) -> tuple[model.Warning, ...]:
        """Warnings for the reader."""
        return self.recording.warnings + self.remarks

    @property
    def folding(self) -> Folding:
        """How the leaks fold, even if there are none."""
        if self.folded:
            return self.folded
        from reachscan.grouping import folding, join

        return folding.fold(join.join(self.recording, root="/"), {})

    @property
    def counted(self) -> Tally:
        """Leaks that count: neither suppressed nor known from the baseline."""
        if self.review:
            return self.review.tallies[COUNTS]
        return Tally(self.recording.totals.leaked, self.recording.totals.leaked_bytes)

    @property
    def counts_definite(self) -> bool:
        """Whether any definite leak counts."""
        from reachscan.recording import model

        if self.review:
            counting = self.folding.reason[self.review.standing == COUNTS]
            return bool((counting == model.DEFINITE).any())
        return bool((self.recording.leaks.reason == model.DEFINITE).any())

    @property
    def groups_counted(self) -> int:
        """How many groups count; they come first."""
        if self.review:
            return int((self.review.standing == COUNTS).sum())
        return len(self.folding.example)

    @property
    def possible(self) -> tuple[int, int]:
        """Blocks and bytes of the leaks that are only possible."""
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
        reasons = tuple(model.Reason)
        for address, size, is_direct, reason, group in zip_equal(
            *(column.tolist() for column in columns)
        ):
            yield LeakedBlock(address, size, is_direct, reasons[reason], group)

    def groups(self, limit: int, rows: int = 20) -> list[Group]:
        """Return the largest groups, largest first.

        Args:
            limit: maximum number of groups.
            rows: maximum number of rows in each histogram and tree, not counting the row that
                sums up the rest.
        """
        return _groups(self, limit, rows)


class HeapScan(NamedTuple):
    """What the live heap is made of.

    Attributes:
        recording: the decoded stream, with names.
        kinds: the live blocks.
        folding: how they fold.
        save_error, candidates, remarks: as in `LeakScan`.
    """

    recording: model.Recording
    kinds: model.Kinds
    folding: Folding
    save_error: errors.OutputError | None = None
    candidates: Candidates = NONE
    remarks: tuple[model.Warning, ...] = ()

    def __repr__(self) -> str:
        """Return one line: a scan may hold megabytes."""
        return f"<HeapScan: {self.recording!r}>"

    @property
    def subject(self) -> str:
        """The name of the question in reports."""
        return "heap"

    @property
    def warnings(self) -> tuple[model.Warning, ...]:
        """Warnings for the reader."""
        return self.recording.warnings + self.remarks

    def groups(self, limit: int, rows: int = 20) -> list[Group]:
        """Return the largest groups, largest first, as `LeakScan.groups` does."""
        return _groups(self, limit, rows)


class BlockAnswer(NamedTuple):
    """An answer about one block: what it is, what keeps it alive, what points to it.

    Attributes:
        recording: the decoded stream, with names; its `chain`, `references` and
            `sightings` are the answer.
        block: the block in question.
        folding: of the blocks that the answer names, each of which is a row.
        save_error: as in `LeakScan`.
    """

    recording: model.Recording
    block: model.Block
    folding: Folding
    save_error: errors.OutputError | None = None

    def __repr__(self) -> str:
        """Return one line: a scan may hold megabytes."""
        return f"<BlockAnswer: {self.block} of {self.recording!r}>"

    @property
    def subject(self) -> str:
        """The name of the question in reports."""
        return "explain"

    @property
    def warnings(self) -> tuple[model.Warning, ...]:
        """Warnings for the reader."""
        return self.recording.warnings


ScanResult = Union[LeakScan, HeapScan, BlockAnswer]


def _groups(scan: LeakScan | HeapScan, limit: int, rows: int) -> list[Group]:
    from reachscan.grouping import folding

    return folding.groups(scan.recording, scan.folding, limit, rows, scan.candidates)
