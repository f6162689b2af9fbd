"""Scans one process repeatedly and says what grew, without growing itself."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reachscan import errors
from reachscan.capture.place import Life
from reachscan.history import census, comparison
from reachscan.history.census import Census
from reachscan.history.comparison import Comparison
from reachscan.judgement import SUPPRESSED, Tally
from reachscan.result import LeakScan

PASSING = (
    errors.AllocatorBusyError,
    errors.AlreadyTracedError,
    errors.CloneRefusedError,
    errors.ConnectionLostError,
    errors.HelperKilledError,
    errors.StartingUpError,
    errors.TimedOutError,
    errors.UnreachableError,
)
"""Failures that may be over by the next scan. Others end a watch in which no scan went well."""

HOPELESS = (errors.HelperUnavailableError, errors.InternalError)


class Why(enum.Enum):
    """Why a watch ended."""

    COUNTED = "counted"
    EXITED = "exited"
    REPLACED = "replaced"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Scanned:
    """A scan that went well.

    Attributes:
        pid: the process.
        now: ns since the epoch.
        found: what leaks, without what is suppressed.
        suppressed: what is.
        pause_ns: how long the process stood still.
        change: since the scan before; None if there was none, or if it was of another program.
        is_another_program: the process has become another program since the scan before.
    """

    pid: int
    now: int
    found: Census
    suppressed: Tally
    pause_ns: int
    change: Comparison | None
    is_another_program: bool


@dataclass(frozen=True)
class Failed:
    """A scan of a process that could not be done at `now`, ns since the epoch."""

    pid: int
    now: int
    error: errors.ReachscanError


@dataclass(frozen=True)
class Ended:
    """The end of a watch.

    Attributes:
        pid: the process.
        now: ns since the epoch.
        why: what ended it.
        seconds: how long it lasted.
        scans, failures: how many scans went well, and how many did not.
        change: from the first scan (of this program) to the last; None if no scan went well.
    """

    pid: int
    now: int
    why: Why
    seconds: float
    scans: int
    failures: int
    change: Comparison | None


Event = Scanned | Failed | Ended


class Watch:
    """Scans of one process, one after the other.

    Attributes:
        is_late: a scan took longer than the time from one to the next.
    """

    def __init__(
        self, life: Life, scan: Callable[[], LeakScan], every: float, count: int | None
    ) -> None:
        """Prepare.

        Args:
            life: of the process.
            scan: scans it once.
            every: seconds from the begin of a scan to that of the next.
            count: scans after which it is enough, well done or not; None for no limit.
        """
        self.is_late = False
        self._life = life
        self._scan = scan
        self._every = every
        self._count = count
        self._begin = time.monotonic()
        self._scans = self._failures = 0
        self._first: Census | None = None
        self._last: Census | None = None

    def events(self) -> Iterator[Event]:
        """Scan until it is enough or the process ends; yields the end last.

        Raises:
            ReachscanError: it is of no use to go on.
        """
        due = time.monotonic()
        while not self._life.ends_within(due - time.monotonic()):
            event = self._once()
            if event is None:
                break
            yield event
            if self._scans + self._failures == self._count:
                yield self.end(Why.COUNTED)
                return
            due += self._every
            if due < time.monotonic():
                self.is_late = True
                due = time.monotonic() + self._every  # the process needs time of its own, too
        yield self.end(Why.REPLACED if self._life.has_successor() else Why.EXITED)

    def end(self, why: Why) -> Ended:
        """Return what there was to be seen until now."""
        change = None
        if self._first and self._last:
            change = comparison.compare(self._first, self._last)
        seconds = time.monotonic() - self._begin
        return Ended(
            pid=self._life.pid,
            now=time.time_ns(),
            why=why,
            seconds=seconds,
            scans=self._scans,
            failures=self._failures,
            change=change,
        )

    def _once(self) -> Scanned | Failed | None:
        """Scan; None if the process has ended."""
        try:
            result = self._scan()
        except errors.ReachscanError as error:
            if self._life.ends_within(0):
                return None
            if isinstance(error, HOPELESS) or not (self._scans or isinstance(error, PASSING)):
                raise
            self._failures += 1
            return Failed(self._life.pid, time.time_ns(), error)
        if self._life.has_successor():
            return None  # and whose memory it was that was scanned, nobody knows
        return self._compare(result)

    def _compare(self, result: LeakScan) -> Scanned:
        recording = result.recording
        found = census.take_counted(result, f"scan {self._scans + 1}")
        before, self._last = self._last, found
        is_another = before is not None and before.program != found.program
        if before is None or is_another:
            before, self._first = None, found
        self._scans += 1
        return Scanned(
            pid=self._life.pid,
            now=recording.target.started,
            found=found,
            suppressed=result.review.tallies[SUPPRESSED] if result.review else Tally(0, 0),
            pause_ns=recording.snapshot.pause_ns,
            change=comparison.compare(before, found) if before else None,
            is_another_program=is_another,
        )
