"""Programs that have their blocks from jemalloc, beside those that libc got from glibc's malloc."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import StartVictim
from glibc_suites import SUITES
from programs import answers
from provisions import provide_all
from same_heap import assert_same_preloaded_heap
from scans import list_heap, run_cli, scan
from test_busy_allocator import scan_repeatedly
from test_enumeration import HEAPS
from test_leak_graph import assert_same_leaks
from unharmed import METHODS
from victims import build, command_on, glibc_of, read_truth, wait_until

SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "4"))
LIBRARY = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
HEAPS_THERE = [name for name in HEAPS if not name.startswith("blocked")]
"""What keeps the program break from growing is nothing to jemalloc."""


@pytest.fixture
def preloaded() -> dict[str, str]:
    provide_all("libjemalloc2")
    return {"LD_PRELOAD": LIBRARY}


@pytest.mark.parametrize("heap", HEAPS_THERE)
def test_enumeration(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], heap: str
) -> None:
    seed, threads, *rest = HEAPS[heap]
    target = victim("ground_truth", truth, seed, threads, *rest, environment=preloaded)
    assert_same_preloaded_heap(list_heap(target.ready["pid"]), read_truth(truth), int(threads))


@pytest.mark.parametrize("heap", HEAPS_THERE)
@pytest.mark.parametrize("suite", SUITES)
def test_enumeration_of_other_releases(
    victim: StartVictim, truth: Path, suite: str, heap: str
) -> None:
    """5.2.1, 5.3.0 with a tree of three levels, 5.3.1."""
    seed, threads, *rest = HEAPS[heap]
    command = command_on(suite, "ground_truth")
    preload = {"LD_PRELOAD": glibc_of(suite).jemalloc}
    target = victim(
        "ground_truth", truth, seed, threads, *rest, command=command, environment=preload
    )
    assert_same_preloaded_heap(list_heap(target.ready["pid"]), read_truth(truth), int(threads))


@pytest.mark.parametrize(
    "settings",
    ["tcache:false", "narenas:1", "cache_oblivious:false", "lg_tcache_max:20", "dss:primary",
     "background_thread:true", "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0",
     "metadata_thp:always"],
)  # fmt: skip
def test_settings(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], settings: str
) -> None:
    environment = {**preloaded, "MALLOC_CONF": settings}
    target = victim("ground_truth", truth, 2, 4, 4000, "drain=60", environment=environment)
    assert_same_preloaded_heap(list_heap(target.pid), read_truth(truth), 6)


def test_without_caches_no_leak_is_certain(
    victim: StartVictim, truth: Path, preloaded: dict[str, str]
) -> None:
    """Nothing shows that there are none, rather than some of another layout."""
    environment = {**preloaded, "MALLOC_CONF": "tcache:false"}
    target = victim("leak_graph", truth, 2000, 50, environment=environment)
    done = run_cli(["scan", target.pid, "--json", "--all", "--limit", 1_000_000])
    assert done.status == 0, done.talk
    report = json.loads(done.out)
    assert_same_leaks(report, read_truth(truth))
    assert {group["reason"] for group in report["groups"]} == {"may-be-free"}
    assert [warning["code"] for warning in report["warnings"]] == ["incomplete-free-blocks"]


@pytest.mark.parametrize("method", METHODS)
def test_methods_agree(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], method: str
) -> None:
    target = victim("ground_truth", truth, 5, 3, 3000, "drain=20", environment=preloaded)
    assert_same_preloaded_heap(list_heap(target.pid, method), read_truth(truth), 3)


@pytest.mark.parametrize("threads", [2, 8])
def test_busy(victim: StartVictim, truth: Path, preloaded: dict[str, str], threads: int) -> None:
    target = victim("busy_threads", truth, threads, 500, environment=preloaded)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize("suite", SUITES)
def test_busy_on_other_releases(victim: StartVictim, truth: Path, suite: str) -> None:
    preload = {"LD_PRELOAD": glibc_of(suite).jemalloc}
    command = command_on(suite, "busy_threads")
    target = victim("busy_threads", truth, 4, 500, command=command, environment=preload)
    scan_repeatedly(target.pid, truth, max(SCANS // 4, 1))


@pytest.mark.parametrize("background", ["false", "true"])
def test_busy_and_giving_memory_back(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], background: str
) -> None:
    """A thread in the background often waits for a lock that has just been freed."""
    settings = f"dirty_decay_ms:0,muzzy_decay_ms:0,background_thread:{background}"
    environment = {**preloaded, "MALLOC_CONF": settings}
    target = victim("busy_threads", truth, 4, 500, environment=environment)
    scan_repeatedly(target.pid, truth, SCANS)


@pytest.mark.parametrize(("blocks", "percent"), [(2000, 50), (100_000, 10), (20_000, 0)])
def test_leak_graph(
    victim: StartVictim, truth: Path, preloaded: dict[str, str], blocks: int, percent: int
) -> None:
    target = victim("leak_graph", truth, blocks, percent, environment=preloaded)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert_same_leaks(report, read_truth(truth))
    assert report["target"]["allocators"] == [f"glibc {platform.libc_ver()[1]}", "jemalloc 5.3"]


@contextmanager
def redis(folder: Path, keys: int, *extra: str) -> Iterator[tuple[int, list[str]]]:
    """Run a server with so many keys; yields it, and the command for one client more."""
    provide_all("redis-server")
    socket = folder / "socket"
    settings = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    command = ["redis-server", *settings, "--enable-debug-command", "yes", *extra]
    client = ["redis-cli", "-s", str(socket)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: answers(socket, b"PING\r\n", b"+PONG"), "redis answers")
            subprocess.run(
                [*client, "debug", "populate", str(keys)], check=True, stdout=subprocess.DEVNULL
            )
            yield server.pid, ["-s", str(socket)]
        finally:
            server.terminate()


def test_idle_redis(tmp_path: Path) -> None:
    with redis(tmp_path, 200_000) as (pid, _):
        report = scan(pid)
    assert report["leaks"]["allocations"] == 0
    assert report["heap"]["allocations"] > 400_000


def test_redis_under_load(tmp_path: Path) -> None:
    with redis(tmp_path, 200_000) as (pid, place):
        load = ["redis-benchmark", *place, "-q", "-l", "-c", "20", "-t", "set,get,lpush,lpop,hset"]
        with subprocess.Popen(load, stdout=subprocess.DEVNULL) as benchmark:
            for _ in range(SCANS):
                assert scan(pid)["leaks"]["allocations"] == 0
            assert benchmark.poll() is None, "the load ended early"
            benchmark.terminate()


def test_module_of_redis(tmp_path: Path) -> None:
    """What a module loses is found in the server's heap, and leads to the module by name."""
    sessions = 300
    module = build("redis_module", ["-shared", "-fPIC"])
    with redis(tmp_path, 10_000, "--loadmodule", str(module)) as (pid, place):
        opening = ["redis-cli", *place, "sessions.open", str(sessions)]
        subprocess.run(opening, check=True, stdout=subprocess.DEVNULL)
        report = scan(pid)
    named = [g for g in report["groups"] if "redis_module+expire_session" in g["signature"]]
    assert [(g["allocations"], g["indirect_allocations"]) for g in named] == [(sessions, sessions)]
    others = [g for g in report["groups"] if g not in named and g["confidence"] == "definite"]
    assert others == []
