"""Watches: what ends them, what does not, and that they do not grow themselves."""

from __future__ import annotations

import gc
import json
import os
import shlex
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Union, cast

import pytest
from loading import load_leaks
from streams import CODE, Leak, Stream

from reachscan import errors
from reachscan.capture.lifetime import Lifetime
from reachscan.history import suppressions
from reachscan.history.census import Census
from reachscan.history.review import review
from reachscan.history.watching import Ended, Event, Failed, Scanned, Watch, Why
from reachscan.judgement import Tally
from reachscan.reports import Selection, Style, watch_json, watch_logfmt, watch_text
from reachscan.result import LeakScan

Step = Union[Stream, errors.ReachscanError]


class Life:
    """A process that lives for so many waits."""

    pid = 7

    def __init__(self, waits: int = 1000, *, successor: bool = False) -> None:
        self.left = waits
        self.waited: list[float] = []
        self._successor = successor

    def ends_within(self, seconds: float) -> bool:
        if seconds != 0:
            self.left -= 1
            self.waited.append(seconds)
        return self.left < 0

    def has_successor(self) -> bool:
        return self._successor and self.left <= 0


def scanned(stream: Stream, rules: Sequence[str] = ()) -> LeakScan:
    with tempfile.NamedTemporaryFile(suffix=".rsc") as file:
        file.write(stream.encoded())
        file.flush()
        return review(load_leaks(Path(file.name)), list(suppressions.parse(rules, "f")))


def watch(
    *steps: Step, life: Life | None = None, count: int | None = None, rules: Sequence[str] = ()
) -> list[Event]:
    """Return the events of a watch whose scans find these streams, the last one ever after."""
    left = list(steps)

    def scan() -> LeakScan:
        step = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(step, errors.ReachscanError):
            raise step
        return scanned(step, rules)

    return list(made(scan, life or Life(), count).events())


def made(scan: Callable[[], LeakScan], life: Life, count: int | None = None) -> Watch:
    return Watch(cast(Lifetime, life), scan, every=1e-9, count=count)


def leaks(number: int) -> Stream:
    return Stream(leaks=[Leak(24)] * number)


def changes(events: Sequence[Event]) -> list[Tally | None]:
    return [e.change.by if e.change else None for e in events if not isinstance(e, Failed)]


BUSY = errors.AllocatorBusyError("the heap is busy")
DENIED = errors.NotPermittedError("not now")


def test_each_scan_is_compared_with_the_one_before_and_the_end_with_the_first() -> None:
    found = watch(leaks(1), leaks(3), leaks(2), count=3)
    assert changes(found) == [None, Tally(2, 48), Tally(-1, -24), Tally(1, 24)]
    end = found[-1]
    assert isinstance(end, Ended)
    assert (end.why, end.scans, end.failures) == (Why.COUNTED, 3, 0)
    assert end.change and end.change.grew


def test_the_end_of_the_process_ends_the_watch() -> None:
    *_, end = watch(leaks(1), life=Life(waits=3))
    assert isinstance(end, Ended)
    assert (end.why, end.scans) == (Why.EXITED, 3)
    assert end.change and not end.change.grew


def test_a_process_that_exits_while_it_is_scanned_is_no_failure() -> None:
    life = Life()

    def scan() -> LeakScan:
        life.left = -1
        raise errors.TargetGoneError("gone")

    (end,) = made(scan, life).events()
    assert isinstance(end, Ended)
    assert (end.why, end.scans, end.failures, end.change) == (Why.EXITED, 0, 0, None)


def test_a_scan_of_another_process_with_the_same_id_does_not_count() -> None:
    *_, end = watch(leaks(1), life=Life(waits=2, successor=True))
    assert isinstance(end, Ended)
    assert (end.why, end.scans) == (Why.REPLACED, 1)


def test_failures_are_told_and_counted_and_not_fatal() -> None:
    found = watch(BUSY, leaks(1), DENIED, BUSY, leaks(2), count=5)
    assert [type(event) for event in found] == [Failed, Scanned, Failed, Failed, Scanned, Ended]
    assert changes(found) == [None, Tally(1, 24), Tally(1, 24)]
    assert isinstance(found[-1], Ended)
    assert (found[-1].scans, found[-1].failures) == (2, 3)


def test_a_watch_that_cannot_begin_is_an_error() -> None:
    with pytest.raises(errors.NotPermittedError):
        watch(DENIED)


@pytest.mark.parametrize("kind", [errors.InternalError, errors.HelperUnavailableError])
def test_bugs_end_a_watch(kind: type[errors.ReachscanError]) -> None:
    with pytest.raises(kind):
        watch(leaks(1), kind("broken"))


def test_another_program_is_not_compared_with_the_one_before() -> None:
    other = Stream(leaks=[Leak(24)] * 9, exe="/usr/bin/other")
    found = watch(leaks(1), other, leaks(1), count=2)
    assert changes(found) == [None, None, Tally(0, 0)]
    assert isinstance(found[1], Scanned) and found[1].is_another_program


def test_what_is_suppressed_does_not_grow() -> None:
    more = Stream(leaks=[Leak(24), Leak(40, [CODE + 8])])
    found = watch(leaks(1), more, count=2, rules=["size: 40"])
    assert changes(found) == [None, Tally(0, 0), Tally(0, 0)]
    assert isinstance(found[1], Scanned) and found[1].suppressed == Tally(1, 40)


def test_scans_that_take_too_long_leave_the_process_time() -> None:
    life = Life()
    watched = made(lambda: scanned(leaks(1)), life, count=4)
    assert [type(event) for event in watched.events()][-1] is Ended
    assert watched.is_late
    assert len(life.waited) == 4


def test_memory_does_not_grow_with_time() -> None:
    alive: list[weakref.ref[Any]] = []
    censuses: list[int] = []

    def scan() -> LeakScan:
        result = scanned(Stream(leaks=[Leak(8 * len(alive))]))
        alive.append(weakref.ref(result.recording.leaks.address))
        return result

    for event in made(scan, Life(), count=25).events():
        del event
        gc.collect()
        assert not any(reference() for reference in alive)
        censuses.append(sum(isinstance(thing, Census) for thing in gc.get_objects()))
    assert len(alive) == 25
    assert max(censuses[5:]) <= max(censuses[:5])


def test_text_of_events_fits_and_cannot_steer_a_terminal() -> None:
    hostile = errors.NotPermittedError("\x1b[2Jno " * 40)
    other = Stream(leaks=[Leak(24 * n) for n in range(9)], exe="/usr/bin/\x1b[2Jx")
    found = watch(leaks(1), leaks(2), hostile, other, other, count=5)
    for event in found:
        for width in (80, 100):
            for line in watch_text.lines(event, Selection(2), Style(width=width)):
                assert line.isprintable() and len(line) <= width
    second = list(watch_text.lines(found[1], Selection(2)))
    assert "2 leaked blocks (+1), 48 B (+24 B); paused 0.4 ms" in second[0]
    assert "grown" in second[1]


def test_details_are_limited() -> None:
    other = Stream(leaks=[Leak(8 * n) for n in range(1, 9)])
    event = watch(Stream(), other, count=2)[1]
    text = "\n".join(watch_text.lines(event, Selection(2)))
    assert "6 more kinds that grew, shown by --limit 8" in text
    assert len(list(watch_logfmt.lines(event, Selection(2)))) == 3
    (line,) = watch_json.lines(event, Selection(2))
    assert [change["what"] for change in json.loads(line)["changes"]] == ["new", "new"]


def test_logfmt_of_events_can_be_read_back() -> None:
    found = watch(leaks(1), BUSY, leaks(2), count=3)
    rows = [
        dict(word.split("=", 1) for word in shlex.split(line))
        for event in found
        for line in watch_logfmt.lines(event, Selection(5))
    ]
    assert [row["event"] for row in rows] == ["scan", "failure", "scan", "change", "end"]
    assert {row["pid"] for row in rows} == {"7"}
    assert (rows[2]["by"], rows[2]["bytes_by"], rows[2]["grew"]) == ("1", "24", "true")
    assert (rows[4]["why"], rows[4]["scans"], rows[4]["failures"]) == ("counted", "2", "1")


def test_events_are_one_json_document_each() -> None:
    found = watch(leaks(1), BUSY, leaks(2), count=3)
    rows = [json.loads(line) for event in found for line in watch_json.lines(event, Selection(5))]
    assert [row["event"] for row in rows] == ["scan", "failure", "scan", "end"]
    assert {row["pid"] for row in rows} == {7}
    first, failure, second, end = rows
    assert (first["by"], first["changes"], failure["error"]) == (None, [], BUSY.sentence)
    assert (second["by"], second["grew"]) == ({"allocations": 1, "bytes": 24}, True)
    assert [change["what"] for change in second["changes"]] == ["grown"]
    assert (end["why"], end["scans"], end["leaks"]["bytes"]) == ("counted", 2, 48)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def test_a_lifetime_ends_with_its_process(sleeper: subprocess.Popen[bytes]) -> None:
    with Lifetime(sleeper.pid) as life:
        assert not life.ends_within(0)
        sleeper.kill()
        assert life.ends_within(60)
        sleeper.wait()
        assert life.ends_within(-1)
        assert not life.has_successor()


def test_no_lifetime_without_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(errors.NoSuchProcessError):
        Lifetime(sleeper.pid)


def test_another_process_with_the_same_id_is_noticed(sleeper: subprocess.Popen[bytes]) -> None:
    counter = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(counter, os.W_OK):
        pytest.skip("ids of processes can be chosen by root only (CAP_CHECKPOINT_RESTORE)")
    with Lifetime(sleeper.pid) as life:
        sleeper.kill()
        sleeper.wait()
        noticed = False
        for _ in range(200):  # others may be faster; and times of start are in clock ticks
            counter.write_text(str(sleeper.pid - 1))
            with subprocess.Popen(["sleep", "1000"]) as other:
                noticed = other.pid == sleeper.pid and life.has_successor()
                other.kill()
            if noticed:
                break
        assert noticed
