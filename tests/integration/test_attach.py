"""A recorder is put into a running process and taken out again; the process never notices."""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attached import (
    Surroundings,
    assert_served,
    code,
    functions,
    hunted,
    imported_functions,
    is_being_recorded,
    obey,
    report_of_hunt,
    without_entries,
)
from conftest import StartVictim
from growing import growing_jq
from provisions import provide_all
from scans import FAILED, PATIENTLY, run_cli, scan
from test_bundled_allocators import command as bundled_command
from unharmed import Helper, Watched, layout
from victims import build, wait_until

TIMES = int(os.environ.get("REACHSCAN_ATTACH_TIMES", "20"))
AT_ONCE = max(TIMES // 2, 1)
SECONDS = float(os.environ.get("REACHSCAN_FAULT_SECONDS", "4")) / 4
"""Time for deaths in one command; every call is tried if it suffices, else a random choice."""
SETTINGS = "depth=32"
CALLS_UNANNOUNCED = 10
"""A death before one of so many calls leaves memory of which nobody knows whose it is."""


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path)


def test_nothing_stays_behind(victim: StartVictim, helper: Helper) -> None:
    server = victim("serving", 3, 0)
    surroundings = Surroundings(server.pid)
    for _ in range(TIMES):
        helper.scan(server.pid, "--attach", SETTINGS, *PATIENTLY)
        helper.scan(server.pid, "--detach", *PATIENTLY)
        surroundings.assert_same()
    assert_served(server)


@pytest.mark.parametrize("hooked", ["entries", "words"])
def test_both_say_what_they_did(victim: StartVictim, hooked: str) -> None:
    environment = without_entries() if hooked == "words" else {}
    server = victim("serving", 1, 0, environment=environment)
    surroundings = Surroundings(server.pid)
    attached = json.loads(run_cli(["attach", server.pid, "--json"]).out)
    assert attached["hooks"] >= 10
    if hooked == "words":
        assert attached["modules"] >= 2  # the program, the C library
    else:
        assert (attached["modules"], attached["not_hooked"]) == (0, 0)
    detached = json.loads(run_cli(["detach", server.pid, "--json"]).out)
    assert detached["kept_bytes"] == 0
    surroundings.assert_same()
    assert_served(server)


def test_stacks_of_what_is_allocated_from_then_on(victim: StartVictim) -> None:
    server = victim("serving", 2, 1000)
    assert run_cli(["attach", server.pid]).status == 0
    report = scan(server.pid)
    recorder = report["target"]["recorder"]
    assert recorder["mode"] == "attach"
    assert recorder["records"] > 0
    names = {tuple(functions(report, group)[:2]) for group in report["groups"]}
    assert ("lose_session", "answer") in names
    assert run_cli(["detach", server.pid]).status == 0
    assert scan(server.pid)["target"]["recorder"] is None
    assert_served(server)


def test_where_names_who_lost_one_block_in_a_thousand_requests(victim: StartVictim) -> None:
    server = victim("serving", 2, 1000)
    words = imported_functions(server.pid)
    report = report_of_hunt(server)
    for group in report["groups"]:
        assert functions(report, group)[:3] == ["lose_session", "answer", "run"]
        assert group["size"] == 280
    assert report["leaks"]["allocations"] > 0
    first, last = report["target"]["recorder"]["sizes"][0]
    assert first <= 272 <= last
    assert len(report["target"]["recorder"]["sizes"]) == 1
    assert imported_functions(server.pid) == words
    assert_served(server)


def test_where_without_leaks_reports_none(victim: StartVictim) -> None:
    server = victim("serving", 1, 0)
    done = run_cli(["where", server.pid, "--for", "0.2", "--json"])
    assert (done.status, json.loads(done.out)["groups"]) == (0, [])
    assert "nothing leaks so far: blocks of all sizes are recorded" in done.talk
    assert_served(server)


def test_where_says_that_it_does_not_see_what_leaks(victim: StartVictim) -> None:
    """The allocator is part of the program, which is stripped, so its functions are not found."""
    server = victim("serving", 2, 1000, command=bundled_command("serving", "dynamic"))
    with hunted(server.pid) as where:
        obey(server, "more")
        where.send_signal(signal.SIGINT)
        out, talk = where.communicate()
    report = json.loads(out)
    assert (where.returncode, report["groups"], report["complete"]) == (1, [], False), talk
    [message] = [w["message"] for w in report["warnings"] if w["code"] == "incomplete-records"]
    assert "jemalloc 5.3" in message


@pytest.mark.parametrize("hooked", ["entries", "words"])
def test_a_pointer_that_the_program_has_kept_leads_to_the_allocator(
    victim: StartVictim, hooked: str
) -> None:
    program = victim("keeps_hook", environment=without_entries() if hooked == "words" else {})
    kept = mmap.PAGESIZE if hooked == "words" else 0

    def kept_bytes(*words: str) -> int:
        assert run_cli(["attach", program.pid]).status == 0
        for word in words:
            obey(program, word)
        done = run_cli(["detach", program.pid, "--json"])
        assert done.status == 0, done.talk
        return int(json.loads(done.out)["kept_bytes"])

    assert kept_bytes("keep", "forget") == 0
    assert kept_bytes("keep") == kept
    obey(program, "call")
    obey(program, "forget")
    assert kept_bytes("exit") == kept  # and it is called at the end


def test_a_program_that_brings_its_own_allocator(victim: StartVictim) -> None:
    """It calls that directly; what else is hooked is too far away for a jump."""
    provide_all("libjemalloc-dev")
    own = ["-Wl,--whole-archive,-l:libjemalloc.a,--no-whole-archive", "-lm", "-lstdc++"]
    server = victim("serving", 2, 300, command=[str(build("serving", own))])
    surroundings = Surroundings(server.pid)
    attached = json.loads(run_cli(["attach", server.pid, "--json"]).out)
    report = scan(server.pid)
    assert {("lose_session", "answer")} <= {
        tuple(functions(report, group)[:2]) for group in report["groups"]
    }
    assert json.loads(run_cli(["detach", server.pid, "--json"]).out)["kept_bytes"] == 0
    surroundings.assert_same()
    assert attached["not_hooked"] == 0
    assert_served(server)


def test_calls_by_a_pointer_that_the_program_took_before(victim: StartVictim) -> None:
    program = victim("keeps_hook")
    obey(program, "keep")
    assert run_cli(["attach", program.pid]).status == 0
    before = scan(program.pid)["target"]["recorder"]["records"]
    obey(program, "call")
    assert scan(program.pid)["target"]["recorder"]["records"] > before
    assert run_cli(["detach", program.pid]).status == 0


def test_where_until_it_is_interrupted_on_a_filter_of_jq_that_leaks() -> None:
    with growing_jq() as jq:
        jq.leak(100)
        with hunted(jq.pid) as where:
            jq.leak(50)
            where.send_signal(signal.SIGINT)
            report = json.loads(where.communicate()[0])
        assert where.returncode == 1
        assert not is_being_recorded(jq.pid)
        jq.end()
    assert 50 <= report["leaks"]["allocations"] <= 2 * 50
    assert all("jq_next" in functions(report, group) for group in report["groups"])


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_where_that_is_ended_leaves_no_recorder(tmp_path: Path, number: int) -> None:
    kept = ("--save", str(tmp_path / "scan.rsc"), "-o", str(tmp_path / "report"))
    with growing_jq() as jq, hunted(jq.pid, *kept) as where:
        jq.leak(50)
        where.send_signal(number)
        where.communicate()
        assert not is_being_recorded(jq.pid)
        assert {path.name for path in tmp_path.iterdir()} == {"scan.rsc", "report"}
        jq.end()


def test_where_another_detaches_meanwhile() -> None:
    with growing_jq() as jq, hunted(jq.pid) as where:
        assert run_cli(["detach", jq.pid]).status == 0
        where.send_signal(signal.SIGINT)
        out, talk = where.communicate()
        jq.end()
    assert (where.returncode, out) == (FAILED, b"")
    assert "`reachscan detach` took the recorder out of it" in talk.decode().splitlines()[-1]


@pytest.mark.parametrize("end", ["kill -9 $$", "exec sleep 1000"])
def test_where_the_process_ends_meanwhile(end: str) -> None:
    shell = ["sh", "-c", f"read line; {end}"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE) as process, hunted(process.pid) as where:
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
        if "exec" in end:
            wait_until(lambda: not is_being_recorded(process.pid), "it is another program")
            where.send_signal(signal.SIGINT)
        out, talk = where.communicate()
        process.kill()
    why = "it executed another program, or" if "exec" in end else "ended while its allocations"
    assert (where.returncode, out) == (FAILED, b"")
    assert why in talk.decode().splitlines()[-1]


@pytest.mark.parametrize("hooked", ["entries", "words"])
@pytest.mark.parametrize("command", ["attach", "detach"])
def test_death_before_each_call(
    victim: StartVictim, helper: Helper, command: str, hooked: str
) -> None:
    environment = without_entries() if hooked == "words" else {}
    server = victim("serving", 2, 0, environment=environment)
    target = Watched(server.pid, helper)
    words = ["--attach", SETTINGS] if command == "attach" else ["--detach"]
    prepare(helper, server.pid, command)
    calls = helper.scan(server.pid, *words, "--count-calls", *PATIENTLY).calls
    end = time.monotonic() + SECONDS
    died = 0
    layouts = set()
    for number in random.Random(calls).sample(range(1, calls + 1), calls):
        if time.monotonic() > end:
            break
        prepare(helper, server.pid, command)
        if command == "attach":
            layouts.add(tuple(layout(server.pid)))
        died += helper.run(server.pid, *words, "--die-at-call", number).killed
        try:
            target.assert_unharmed()
        except AssertionError as error:
            raise AssertionError(f"{command}, death before call {number}: {error}") from error
    print(f"{command}: {calls} calls, {died} deaths, {len(layouts)} layouts")
    assert died > 0
    assert len(layouts) <= 1 + CALLS_UNANNOUNCED
    prepare(helper, server.pid, "attach")
    helper.scan(server.pid, "--attach", SETTINGS, *PATIENTLY)
    helper.scan(server.pid, "--detach", *PATIENTLY)
    assert_served(server)


def test_several_at_once_some_of_which_die(victim: StartVictim, helper: Helper) -> None:
    server = victim("serving", 2, 0)
    before = code(server.pid)
    calls = helper.scan(server.pid, "--attach", SETTINGS, "--count-calls", *PATIENTLY).calls
    helper.scan(server.pid, "--detach", *PATIENTLY)

    def work(seed: int) -> int:
        chance = random.Random(seed)
        died = 0
        for _ in range(AT_ONCE):
            words = chance.choice((["--attach", SETTINGS], ["--detach"]))
            fate = ["--die-at-call", chance.randrange(1, calls)] * chance.randrange(2)
            died += helper.run(server.pid, *words, *fate, *PATIENTLY).killed
        return died

    with ThreadPoolExecutor() as pool:
        assert sum(pool.map(work, range(3))) > 0
    prepare(helper, server.pid, "attach")
    helper.scan(server.pid, "--attach", SETTINGS, *PATIENTLY)
    helper.scan(server.pid, "--detach", *PATIENTLY)
    assert code(server.pid) == before
    assert_served(server)


def prepare(helper: Helper, pid: int, command: str) -> None:
    """Bring a process into the state in which a command has something to do."""
    if command == "attach":
        ending = helper.run(pid, "--detach", *PATIENTLY)
        assert ending.status == 0 or "is not being recorded" in ending.sentence, ending
    else:
        ending = helper.run(pid, "--attach", SETTINGS, *PATIENTLY)
        assert ending.status == 0 or "already being recorded" in ending.sentence, ending


@pytest.mark.parametrize(
    ("package", "library"),
    [("libjemalloc2", "libjemalloc.so.2"), ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4")],
)
def test_where_with_another_allocator(victim: StartVictim, package: str, library: str) -> None:
    provide_all(package)
    environment = {"LD_PRELOAD": library, "LD_BIND_NOW": "1"}  # nobody else fills in a word then
    server = victim("serving", 2, 1000, environment=environment)
    surroundings = imported_functions(server.pid)
    report = report_of_hunt(server)
    for group in report["groups"]:
        assert functions(report, group)[:3] == ["lose_session", "answer", "run"]
    assert imported_functions(server.pid) == surroundings
    assert_served(server)
