"""Thorough scans: a stale word hides a leak only for a while, and an error is not repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import StartVictim
from growing import growing_jq
from scans import leaked, run_cli, scan
from victims import Victim, need, wait_until

from reachscan.capture import helper, repeated
from reachscan.capture.lifetime import Lifetime
from reachscan.capture.options import ScanOptions
from reachscan.capture.place import Here, Life, Progressed
from reachscan.recording import model, wire
from reachscan.recording.decode import decode
from reachscan.recording.moments import Moments
from reachscan.recording.zip_equal import zip_equal
from reachscan.transport.elsewhere import Elsewhere

Reasons = dict[int, int]


def look(moments: Moments, target: Victim) -> None:
    options = ScanOptions(digests=True, lost_before=moments.lost_before)
    with helper.run(target.pid, options) as stream:
        frames = list(stream)
    moments.add(frames, decode(frames))


def step(target: Victim) -> dict[str, Any]:
    """Let the program do the next thing; return what it says then."""
    assert target.process.stdin is not None
    target.process.stdin.write(b"\n")
    target.process.stdin.flush()
    said: dict[str, Any] = json.loads(target.read_line())
    return said


def reasons(found: model.Recording) -> Reasons:
    return dict(zip_equal(found.leaks.address.tolist(), found.leaks.reason.tolist()))


def summary(found: model.Recording) -> tuple[int, int]:
    assert found.moments is not None
    return found.moments.hidden[0], found.moments.withdrawn[0]


def test_a_word_hides_nothing_for_good(victim: StartVictim) -> None:
    target, moments = victim("moments"), Moments(0)
    at = target.ready
    names = ("lost", "hidden", "below", "freed", "orphan", "written")
    look(moments, target)
    assert reasons(decode(moments.merged())) == {at[name]: model.DEFINITE for name in names}
    assert step(target)["what"] == "hidden"
    look(moments, target)
    doubtful = {at["written"]: model.CHANGED, at["orphan"]: model.CHANGED}
    found = decode(moments.merged())
    assert reasons(found) == {
        at["lost"]: model.DEFINITE,
        at["hidden"]: model.LOST_BEFORE,
        at["below"]: model.LOST_BEFORE,
        **doubtful,
    }
    assert summary(found) == (2, 3)
    rows = zip_equal(found.leaks.address.tolist(), found.leaks.parent.tolist())
    owner = dict(rows)[at["below"]]
    assert int(found.leaks.address[owner]) == at["hidden"]
    assert step(target)["what"] == "lost again"
    look(moments, target)
    found = decode(moments.merged())
    certain = ("lost", "hidden", "below")
    assert reasons(found) == {**dict.fromkeys((at[n] for n in certain), model.DEFINITE), **doubtful}
    assert summary(found) == (0, 3)


class Eventful(Here):
    """This machine, where something happens instead of each interval between scans, once each."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.scans, self._events = 0, list(events)

    @contextmanager
    def scan(
        self, pid: int, options: ScanOptions, on_progress: Progressed | None
    ) -> Iterator[Iterator[wire.Frame]]:
        with super().scan(pid, options, on_progress) as frames:
            yield frames
        self.scans += 1

    def life(self, pid: int) -> Life:
        return Hurried(pid, self._events)


class Hurried(Lifetime):
    """The life of a process in which nobody waits."""

    def __init__(self, pid: int, events: list[Callable[[], object]]) -> None:
        super().__init__(pid)
        self._events = events

    def ends_within(self, seconds: float) -> bool:
        if self._events:
            self._events.pop(0)()
        return super().ends_within(0)


def test_it_ends_when_the_process_rests(victim: StartVictim) -> None:
    target = victim("moments")
    place = Eventful(lambda: step(target))
    found = decode(repeated.thorough(place, target.pid, ScanOptions(), None))
    assert found.moments is not None and found.moments.rested
    assert place.scans == len(found.moments.pauses_ns)
    assert 2 <= place.scans < repeated.MOMENTS
    assert reasons(found)[target.ready["hidden"]] == model.LOST_BEFORE


def test_a_process_at_work_is_scanned_to_the_end(victim: StartVictim) -> None:
    target = victim("checker", "1")
    with Lifetime(target.pid) as life:

        def works() -> None:
            before = life.activity()
            wait_until(lambda: life.activity() != before, "it has run")

        place = Eventful(*[works] * repeated.MOMENTS)
        found = decode(repeated.thorough(place, target.pid, ScanOptions(), None))
    assert found.moments is not None and not found.moments.rested
    assert place.scans == repeated.MOMENTS


@contextmanager
def idle_jq(records: int) -> Iterator[int]:
    with growing_jq() as jq:
        jq.leak(records)
        yield jq.pid
        jq.end()


@pytest.mark.parametrize("words", [[], ["--on", "exec:env"]], ids=["here", "elsewhere"])
def test_a_process_that_rests_leaks_what_it_leaks(tmp_path: Path, words: list[str]) -> None:
    saved = tmp_path / "scan.rsc"
    with idle_jq(50) as pid:
        once = scan(pid, "--all")
        often = scan(pid, "--all", "--thorough", "--save", saved, *words)
    assert (leaked(once) == leaked(often)).all()
    assert once["leaks"] == often["leaks"]
    nothing = {"allocations": 0, "bytes": 0}
    assert often["moments"]["hidden"] == often["moments"]["withdrawn"] == nothing
    assert often["moments"]["rested"] and once["moments"] is None
    again = json.loads(run_cli(["report", saved, "--json", "--all"]).out)
    assert again["moments"] == often["moments"]
    assert again["allocations"] == often["allocations"]


@pytest.mark.parametrize("shell", ["bash", "busybox", "dash", "mksh"])
def test_what_earlier_scans_found_is_told_elsewhere(
    victim: StartVictim, tmp_path: Path, shell: str
) -> None:
    (tmp_path / "sh").symlink_to(need(shell, {"busybox": "busybox-static"}.get(shell, shell)))
    where = f"exec:env PATH={tmp_path}:{os.environ['PATH']}"
    target, moments = victim("moments"), Moments(0)
    with closing(Elsewhere(where, None, verbose=False)) as place:
        for _ in range(2):
            options = ScanOptions(digests=True, lost_before=moments.lost_before)
            with place.scan(target.pid, options, None) as stream:
                frames = list(stream)
            moments.add(frames, decode(frames))
            assert place.life(target.pid).activity()
            step(target)
    assert reasons(decode(moments.merged()))[target.ready["hidden"]] == model.LOST_BEFORE


def test_it_cannot_be_done_to_a_process_that_runs_on(victim: StartVictim) -> None:
    target = victim("moments")
    refused = run_cli(["scan", target.pid, "--thorough", "--method", "live"])
    assert refused.status == 2 and "--method live" in refused.talk
    moments = Moments(0)
    look(moments, target)
    options = ScanOptions(digests=True, lost_before=moments.lost_before, method="live")
    with helper.run(target.pid, options) as stream, pytest.raises(Exception, match="each of them"):
        decode(stream)
