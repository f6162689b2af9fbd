"""Scans a process repeatedly and reports what grew, in constant memory."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Union

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
"""Failures that may be temporary. Others end a watch that has had no successful scan."""

HOPELESS = (errors.HelperUnavailableError, errors.InternalError)


class Why(enum.Enum):
    """Why a watch ended."""

    COUNTED = "counted"
    EXITED = "exited"
    REPLACED = "replaced"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Scanned:
    """A successful scan.

    Attributes:
        pid: the process.
        now: ns since the epoch.
        found: leaks that are not suppressed.
        suppressed: leaks that are.
        pause_ns: how long the process was stopped, in ns.
        change: since the last scan; None if there was none, or it was of another program.
        is_another_program: the process has executed another program since the last scan.
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
    """A scan that failed at `now`, ns since the epoch."""

    pid: int
    now: int
    error: errors.ReachscanError


@dataclass(frozen=True)
class Ended:
    """The end of a watch.

    Attributes:
        pid: the process.
        now: ns since the epoch.
        why: the reason.
        seconds: duration of the watch.
        scans, failures: number of successful and of failed scans.
        change: from the first scan (of this program) to the last; None without a successful scan.
    """

    pid: int
    now: int
    why: Why
    seconds: float
    scans: int
    failures: int
    change: Comparison | None


Event = Union[Scanned, Failed, Ended]


class Watch:
    """Repeated scans of one process.

    Attributes:
        is_late: a scan took longer than the interval.
    """

    def __init__(
        self, life: Life, scan: Callable[[], LeakScan], every: float, count: int | None
    ) -> None:
        """Prepare.

        Args:
            life: the life of the process.
            scan: scans it once.
            every: seconds from the start of one scan to the start of the next.
            count: number of scans, successful or not; None for no limit.
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
        """Scan until the count is reached or the process exits; yield the end last.

        Raises:
            ReachscanError: further scans would fail, too.
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
                due = time.monotonic() + self._every  # leave the process some time of its own
        yield self.end(Why.REPLACED if self._life.has_successor() else Why.EXITED)

    def end(self, why: Why) -> Ended:
        """Return the end of the watch, as of now."""
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
        """Scan; return None if the process has exited."""
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
            return None  # whose memory was scanned is unknown
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
