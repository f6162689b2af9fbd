"""The helper for armv7, on a real kernel of 32-bit Arm in an emulator.

Some minutes: only with REACHSCAN_EMULATOR=1. Needs qemu-system-arm and g++-arm-linux-gnueabihf.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import emulator
import glibc_suites
import numpy as np
import pytest
from guests import (
    BUSY_LEAKS,
    COMPILERS,
    DEATHS,
    EMULATED,
    FIXTURES,
    ONLY_LONG,
    SHORT,
    assert_nobody_notices,
    blocks,
    die_at_calls,
    recording,
    run,
)
from same_heap import assert_same_heap
from scans import FAILED, run_cli
from test_32_bit import CHANCE
from test_aarch64 import IDLE, assert_jq_leaks, scan_idle, wrong_about_scenes
from victims import GIVING_BACK, KIND_FIRST_RING, REPOSITORY, build, need, read_truth

from reachscan.recording.architectures import ARM

pytestmark = [EMULATED, ONLY_LONG]

METHODS = pytest.mark.parametrize("method", ["clone", "copy"])


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[emulator.Guest]:
    need("arm-linux-gnueabihf-g++", "g++-arm-linux-gnueabihf")
    share = tmp_path_factory.mktemp("guest") / "share"
    share.mkdir()
    try:
        system = emulator.fetch("armmp")
    except glibc_suites.UnavailableError as reason:
        pytest.skip(f"nothing was tested on armv7: {reason}")
    subprocess.run(["make", "helpers", "HELPERS=armv7"], cwd=REPOSITORY, check=True)
    shutil.copy(REPOSITORY / "reachscan/_native/helpers/armv7/reachscan-helper", share)
    compiler, flags = COMPILERS[SHORT]
    for name in FIXTURES:
        shutil.copy(build(name, flags, compiler), share / name)
    module = build("roots_module", ["-shared", "-fPIC"], compiler)
    shutil.copy(module, share / "roots_module")
    with emulator.machine(system, share) as machine:
        yield machine


@METHODS
def test_heap_is_listed_exactly(guest: emulator.Guest, method: str) -> None:
    run(
        guest,
        f"""
        start ground_truth /mnt/truth 4 8 500 drain=30
        scan --method {method} --list-heap >/mnt/stream; finish
        """,
    )
    assert_same_heap(blocks(guest.share / "stream"), read_truth(guest.share / "truth"), 9)


@METHODS
def test_leak_graph_is_found_exactly(guest: emulator.Guest, method: str) -> None:
    run(
        guest,
        f"""
        start leak_graph /mnt/truth 2000 50
        scan --method {method} >/mnt/stream; finish
        """,
    )
    truth, found = read_truth(guest.share / "truth"), blocks(guest.share / "stream")
    assert np.array_equal(found[:, :2], truth[:, :2])
    in_tree = truth[:, 2] < KIND_FIRST_RING
    assert np.array_equal(found[in_tree], truth[in_tree])
    told = recording(guest.share / "stream")
    assert (told.machine, told.snapshot.method) == (ARM, method)


@pytest.mark.parametrize("places", ["roots /tmp/scratch /mnt/roots_module", "pipe_pointers few"])
@METHODS
def test_each_place_of_a_pointer(guest: emulator.Guest, method: str, places: str) -> None:
    run(
        guest,
        f"""
        start {places}
        scan --method {method} >/mnt/stream; cp /tmp/out /mnt/scenes; finish
        """,
    )
    assert wrong_about_scenes(guest.share) == {}


@METHODS
def test_a_busy_allocator(guest: emulator.Guest, method: str) -> None:
    run(
        guest,
        f"""
        export {" ".join(f"{name}={value}" for name, value in GIVING_BACK.items())}
        start busy_threads /mnt/truth 2 {BUSY_LEAKS}
        # So slow a machine may not let the threads leave the allocator in time; a scan says so.
        for try in 1 2 3 4 5; do scan --method {method} >/mnt/stream && break; done; finish
        """,
    )
    found, truth = blocks(guest.share / "stream"), read_truth(guest.share / "truth")
    assert np.isin(found[:, 0], truth[:, 0]).all(), "live blocks are reported"
    assert len(found) >= BUSY_LEAKS - CHANCE


@METHODS
def test_nobody_notices(guest: emulator.Guest, method: str) -> None:
    assert_nobody_notices(guest, "", method)


def test_death_at_calls(guest: emulator.Guest) -> None:
    assert die_at_calls(guest) >= DEATHS // 2


@pytest.mark.parametrize("name", ["python3", "jq", "nginx"])
def test_idle_program(guest: emulator.Guest, name: str) -> None:
    told = recording(scan_idle(guest, *IDLE[name]))
    assert told.machine == ARM
    assert told.totals.leaked_bytes == 0


def test_redis_is_refused(guest: emulator.Guest) -> None:
    """It uses jemalloc."""
    report = run_cli(["report", scan_idle(guest, *IDLE["redis"])])
    assert (report.status, report.out) == (FAILED, "")
    said = " ".join(report.talk.split())
    assert "libjemalloc.so.2" in said and said.endswith("in 32-bit programs only that of glibc")


def test_jq_leaks(guest: emulator.Guest) -> None:
    # In smaller words, more numbers look like an address or a distance.
    assert_jq_leaks(guest, 0.05)


@pytest.mark.parametrize("method", ["track", "live"])
def test_what_this_kernel_cannot_do_is_refused(guest: emulator.Guest, method: str) -> None:
    said = run(
        guest,
        f"""
        start leak_graph /mnt/truth 20 5
        scan --method {method} >/mnt/stream; echo status $?; finish
        """,
    )
    assert "status 1" in said
    report = run_cli(["report", guest.share / "stream"])
    assert report.out == ""
