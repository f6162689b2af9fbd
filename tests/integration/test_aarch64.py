"""The helper for aarch64, on a real kernel of that processor in an emulator.

Only with REACHSCAN_EMULATOR=1, or =short for a part that takes a few minutes. Needs
qemu-system-arm, g++-aarch64-linux-gnu and, but for the short form, g++-arm-linux-gnueabihf.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import emulator
import glibc_suites
import numpy as np
import pytest
from attached import functions
from guests import (
    BUSY_LEAKS,
    COMPILERS,
    DEATHS,
    EMULATED,
    FIXTURES,
    ONLY_LONG,
    SHORT,
    SHORT_FORM,
    assert_nobody_notices,
    blocks,
    die_at_calls,
    recording,
    run,
)
from same_heap import assert_same_heap, assert_same_preloaded_heap
from scans import PATIENTLY, run_cli
from test_32_bit import CHANCE
from test_roots import by_address, wrong_about
from victims import (
    GIVING_BACK,
    KIND_FIRST_RING,
    REPOSITORY,
    build,
    need,
    read_truth,
)

from reachscan.recording.architectures import AARCH64, ARM

pytestmark = EMULATED

MACHINES = {"": AARCH64, SHORT: ARM}
WORDS = ("",) if SHORT_FORM else tuple(COMPILERS)
CALLS_OF_ALLOCATOR = 100 if SHORT_FORM else 500
"""By each thread."""
METHODS = pytest.mark.parametrize(
    ("guest", "words", "method"),
    [
        pytest.param(4, "", "clone", id="clone"),
        pytest.param(4, "", "copy", id="copy"),
        pytest.param(4, SHORT, "copy", id="32-bit"),
        pytest.param(16, "", "clone", id="16-KiB-clone"),
        pytest.param(16, "", "copy", id="16-KiB-copy"),
    ][: 1 if SHORT_FORM else None],  # a test of another guest, even if it is skipped, ends this one
    indirect=["guest"],
)
"""The KiB of the kernel's pages, the programs, the method."""
SMALL_PAGES = pytest.mark.parametrize("guest", [4], indirect=True, ids=["4-KiB"])
ALL_PAGES = pytest.mark.parametrize("guest", [4, 16], indirect=True, ids=["4-KiB", "16-KiB"])
FLAVOURS = {4: "arm64", 16: "arm64-16k"}
JEMALLOC = "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"
LOST = 2000
NGINX = """
daemon off; master_process off; user root root; pid nginx.pid; error_log /proc/self/fd/1 notice;
events {}
http {
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi; access_log off;
  server { listen unix:/tmp/nginx.socket; }
}
"""
LEAKING_JQ = """jq --null-input --unbuffered '0, (inputs | ltrimstr("x"))'"""
IDLE = {
    "python3": ("python3 -c 'import json, sys; print(1, flush=True); sys.stdin.read()'", "1"),
    "jq": ("jq --null-input --unbuffered '1, input'", "1"),
    "redis": ("redis-server --port 0 --unixsocket /tmp/redis --save ''", "eady to accept"),
    "nginx": ("/usr/sbin/nginx -p /tmp -e /proc/self/fd/1 -c /mnt/nginx.conf", "epoll"),
}
"""Programs, and what they say when they are up."""
IDLE_PROGRAMS = pytest.mark.parametrize(
    ("program", "said"),
    [
        pytest.param(*how, id=name, marks=() if name == "python3" else ONLY_LONG)
        for name, how in IDLE.items()
    ],
)


@pytest.fixture(scope="module")
def guest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[emulator.Guest]:
    need("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu")
    if not SHORT_FORM:
        need("arm-linux-gnueabihf-gcc", "g++-arm-linux-gnueabihf")
    share = tmp_path_factory.mktemp("guest") / "share"
    share.mkdir()
    try:
        system = emulator.fetch(FLAVOURS[request.param])
    except glibc_suites.UnavailableError as reason:
        pytest.skip(f"nothing was tested on aarch64: {reason}")
    subprocess.run(["make", "helpers", "HELPERS=aarch64"], cwd=REPOSITORY, check=True)
    shutil.copy(REPOSITORY / "reachscan/_native/helpers/aarch64/reachscan-helper", share)
    for words in WORDS:
        compiler, flags = COMPILERS[words]
        for name in FIXTURES:
            shutil.copy(build(name, flags, compiler), share / f"{name}{words}")
        module = build("roots_module", ["-shared", "-fPIC"], compiler)
        shutil.copy(module, share / f"roots_module{words}")
    with emulator.machine(system, share) as machine:
        yield machine


def wrong_about_scenes(share: Path) -> dict[str, str]:
    """Return what a stream is wrong about, by the scenes that its target told of."""
    report = json.loads(run_cli(["report", share / "stream", "--json", "--all"]).out)
    ready = json.loads((share / "scenes").read_text().splitlines()[0])
    return wrong_about(by_address(ready["scenes"]), report)


@METHODS
def test_heap_is_listed_exactly(guest: emulator.Guest, words: str, method: str) -> None:
    run(
        guest,
        f"""
        start ground_truth{words} /mnt/truth 4 8 {CALLS_OF_ALLOCATOR} drain=30
        scan --method {method} --list-heap >/mnt/stream; finish
        """,
    )
    threads = 9
    assert_same_heap(blocks(guest.share / "stream"), read_truth(guest.share / "truth"), threads)


@METHODS
def test_leak_graph_is_found_exactly(guest: emulator.Guest, words: str, method: str) -> None:
    run(
        guest,
        f"""
        start leak_graph{words} /mnt/truth 2000 50
        scan --method {method} >/mnt/stream; finish
        """,
    )
    truth, found = read_truth(guest.share / "truth"), blocks(guest.share / "stream")
    assert np.array_equal(found[:, :2], truth[:, :2])
    in_tree = truth[:, 2] < KIND_FIRST_RING
    assert np.array_equal(found[in_tree], truth[in_tree])
    told = recording(guest.share / "stream")
    assert (told.machine, told.snapshot.method) == (MACHINES[words], method)


@METHODS
def test_each_place_of_a_pointer(guest: emulator.Guest, words: str, method: str) -> None:
    run(
        guest,
        f"""
        start roots{words} /tmp/scratch /mnt/roots_module{words}
        scan --method {method} >/mnt/stream; cp /tmp/out /mnt/scenes; finish
        """,
    )
    assert wrong_about_scenes(guest.share) == {}


@METHODS
def test_pointers_in_a_pipe(guest: emulator.Guest, words: str, method: str) -> None:
    run(
        guest,
        f"""
        start pipe_pointers{words} few
        scan --method {method} >/mnt/stream; cp /tmp/out /mnt/scenes; finish
        """,
    )
    assert wrong_about_scenes(guest.share) == {}


@ONLY_LONG
@METHODS
def test_a_busy_allocator(guest: emulator.Guest, words: str, method: str) -> None:
    run(
        guest,
        f"""
        export {" ".join(f"{name}={value}" for name, value in GIVING_BACK.items())}
        start busy_threads{words} /mnt/truth 2 {BUSY_LEAKS}
        # So slow a machine may not let the threads leave the allocator in time; a scan says so.
        for try in 1 2 3 4 5; do scan --method {method} >/mnt/stream && break; done; finish
        """,
    )
    found, truth = blocks(guest.share / "stream"), read_truth(guest.share / "truth")
    assert np.isin(found[:, 0], truth[:, 0]).all(), "live blocks are reported"
    assert len(found) >= BUSY_LEAKS - CHANCE


@METHODS
def test_nobody_notices(guest: emulator.Guest, words: str, method: str) -> None:
    assert_nobody_notices(guest, words, method)


@SMALL_PAGES
def test_death_at_calls(guest: emulator.Guest) -> None:
    assert die_at_calls(guest) >= DEATHS // 2


@ONLY_LONG
@ALL_PAGES
def test_heap_of_jemalloc_that_was_built_for_larger_pages(guest: emulator.Guest) -> None:
    """Debian's: 64 KiB, on every kernel."""
    run(
        guest,
        f"""
        export LD_PRELOAD={JEMALLOC}; start ground_truth /mnt/truth 4 8 500 drain=30
        unset LD_PRELOAD; scan --list-heap >/mnt/stream; finish
        """,
    )
    found, truth = blocks(guest.share / "stream"), read_truth(guest.share / "truth")
    assert_same_preloaded_heap(found, truth, 8)
    heaps = recording(guest.share / "stream").heaps
    assert any(heap.allocator.startswith("jemalloc") for heap in heaps)


def scan_idle(guest: emulator.Guest, program: str, said: str) -> Path:
    """Scan a program when it is up; return the stream."""
    (guest.share / "nginx.conf").write_text(NGINX)
    run(
        guest,
        f"""
        start {program}
        until [[ $(</tmp/out) = *"{said}"* ]]; do kill -0 $p || exit 92; sleep 0.1; done
        scan --method clone >/mnt/stream; kill $p; exec 4>&-
        """,
    )
    return guest.share / "stream"


@SMALL_PAGES
@IDLE_PROGRAMS
def test_idle_program(guest: emulator.Guest, program: str, said: str) -> None:
    told = recording(scan_idle(guest, program, said))
    assert told.machine == AARCH64
    assert told.totals.leaked_bytes == 0


@SMALL_PAGES
def test_who_leaks_there(
    guest: emulator.Guest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked from this machine: the helper is sent there, the files with names come from there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jq = run(
        guest,
        f"""
        start {LEAKING_JQ}
        while printf '1\\n'; do sleep 0.1; done >/tmp/in & echo $p
        """,
    ).strip()
    done = run_cli(["where", "--on", guest.place, jq, "--for", "5", "--json", *PATIENTLY])
    assert done.status == 1, done.talk
    report = json.loads(done.out)
    assert (report["target"]["arch"], report["target"]["recorder"]["mode"]) == ("aarch64", "attach")
    assert report["leaks"]["allocations"] > 0
    assert all("jq_next" in functions(report, group) for group in report["groups"])
    again = run_cli(["scan", "--on", guest.place, jq, "--json", *PATIENTLY])
    assert json.loads(again.out)["target"]["recorder"] is None, again.talk
    run(guest, f"kill {jq}; wait")


@SMALL_PAGES
def test_jq_leaks(guest: emulator.Guest) -> None:
    # Among so many, a word may look like the distance to one by chance.
    assert_jq_leaks(guest, 0.02)


def assert_jq_leaks(guest: emulator.Guest, missed: float) -> None:
    """A bug of jq 1.6: of each number that should be a text, two blocks are lost."""
    run(
        guest,
        f"""
        test $(jq --version) = jq-1.6 || exit 92
        start {LEAKING_JQ}
        printf '1\\n%.0s' {{1..{LOST}}} >&4
        until test $(wc -l </tmp/out) = {LOST + 1}; do kill -0 $p || exit 93; sleep 0.1; done
        scan >/mnt/stream; finish
        """,
    )
    totals = recording(guest.share / "stream").totals
    assert totals.direct == pytest.approx(LOST, rel=missed)
    assert totals.leaked == pytest.approx(2 * LOST, rel=missed)
