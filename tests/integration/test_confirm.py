"""Repeated scans: what comes back, is freed, or is still written to, is not taken for lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import StartVictim
from growing import growing_jq
from scans import leaked, run_cli, scan
from victims import Victim

from reachscan.capture import helper
from reachscan.capture.options import ScanOptions
from reachscan.recording import model
from reachscan.recording.confirm import Confirmer
from reachscan.recording.decode import decode
from reachscan.recording.zip_equal import zip_equal


def look(confirmer: Confirmer, target: Victim) -> set[int]:
    """Scan once; returns what seems lost."""
    with helper.run(target.pid, ScanOptions(digests=True)) as stream:
        frames = list(stream)
    recording = decode(frames)
    confirmer.add(frames, recording)
    return set(recording.leaks.address.tolist())


def test_second_thoughts(victim: StartVictim) -> None:
    target = victim("second_thoughts")
    confirmer = Confirmer(0)
    at = target.ready
    assert look(confirmer, target) == {
        at[name] for name in ("lost", "back", "freed", "written", "owned")
    }
    assert target.process.stdin is not None
    target.process.stdin.write(b"\n")
    target.process.stdin.flush()
    at = json.loads(target.read_line())
    names = ("lost", "written", "owner", "owned")
    assert look(confirmer, target) == {at[name] for name in names}
    leaks = (found := decode(confirmer.merged())).leaks
    rows = zip_equal(leaks.address.tolist(), leaks.parent.tolist(), leaks.reason.tolist())
    assert sorted(rows) == sorted(
        [
            (at["lost"], model.DIRECT, model.DEFINITE),
            (at["written"], model.DIRECT, model.CHANGED),
            (at["owned"], model.DIRECT, model.DEFINITE),
        ]
    )
    assert found.confirmation is not None
    assert (found.confirmation.vanished[0], found.confirmation.recent[0]) == (2, 1)


@contextmanager
def idle_jq(records: int) -> Iterator[int]:
    with growing_jq() as jq:
        jq.leak(records)
        yield jq.pid
        jq.end()


def test_a_process_that_rests_is_confirmed_as_it_is() -> None:
    with idle_jq(50) as pid:
        once = scan(pid, "--all")
        thrice = scan(pid, "--all", "--confirm", 3, "--confirm-every", 0)
    assert (leaked(once) == leaked(thrice)).all()
    assert thrice["leaks"]["possible_allocations"] == once["leaks"]["possible_allocations"]
    confirmation = thrice["confirmation"]
    assert confirmation["scans"] == len(confirmation["pauses_us"]) == 3
    assert confirmation["vanished"] == confirmation["recent"] == {"allocations": 0, "bytes": 0}


def test_a_confirmed_scan_can_be_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.rsc"
    options = ("--confirm", 2, "--confirm-every", 0, "--json", "--all")
    with idle_jq(50) as pid:
        done = run_cli([pid, *options, "--save", kept])
    assert done.status == 1, done.talk
    assert run_cli(["report", kept, "--json", "--all"]).out == done.out
