"""32-bit programs are looked at as exactly as others, where the processor runs them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from same_heap import assert_same_heap
from scans import leaked, list_heap, run_cli, scan
from test_busy_allocator import LEAKS
from test_enumeration import HEAPS, STATIC_STARTUP_BLOCKS
from test_held_by_kernel import assert_verdicts
from test_leak_graph import assert_same_leaks, assert_sums
from test_roots import start, wrong_verdicts
from victims import GIVING_BACK, build, need, read_truth

KERNEL_HEADERS = ("-idirafter", "/usr/include/x86_64-linux-gnu")
"""Where Debian has them, if cross compilers for other processors are installed, too."""

SCANS = 3
CHANCE = 5
"""So many leaks may be missed because something looks like a pointer to them."""


def command(name: str, *flags: str) -> list[str]:
    """Return the command of a fixture program that was built with words of four bytes."""
    try:
        return [str(build(name, ["-m32", *KERNEL_HEADERS, *flags]))]
    except AssertionError as error:
        pytest.skip(f"no 32-bit programs can be built (apt install g++-12-multilib): {error}")


@pytest.mark.parametrize(
    ("heap", "flags"),
    [("drained", []), ("mmapped", []), ("blocked-first", []), ("forked", ["-static"])],
)
def test_every_block_is_found(
    victim: StartVictim, truth: Path, heap: str, flags: list[str]
) -> None:
    seed, threads, *rest = HEAPS[heap]
    target = victim(
        "ground_truth", truth, seed, threads, *rest, command=command("ground_truth", *flags)
    )
    found = list_heap(target.ready["pid"], "auto")
    own = int(threads) + (STATIC_STARTUP_BLOCKS if flags else 0)
    assert_same_heap(found, read_truth(truth), own)


def test_leaks_of_every_shape(victim: StartVictim, truth: Path) -> None:
    # Numbers may be addresses of 32 bits by chance, so the heap is always at the same place.
    fixed = [need("setarch", "util-linux"), "--addr-no-randomize", *command("leak_graph")]
    target = victim("leak_graph", truth, 20_000, 10, command=fixed)
    report = scan(target.pid, "--all", "--limit", 1_000_000)
    assert report["target"]["arch"] == "i386"
    assert report["snapshot"]["method"] == "copy"
    assert_same_leaks(report, read_truth(truth))
    assert_sums(report, read_truth(truth))


@pytest.mark.parametrize("threads", [0, 4])
def test_a_busy_allocator(victim: StartVictim, truth: Path, threads: int) -> None:
    program = command("busy_threads")
    target = victim("busy_threads", truth, threads, LEAKS, environment=GIVING_BACK, command=program)
    expected = read_truth(truth)
    for _ in range(SCANS):
        found = leaked(scan(target.pid, "--all"))
        assert np.isin(found[:, 0], expected[:, 0]).all(), "live blocks are reported"
        # The program computes with random words all the time, and one may be an address.
        assert len(found) >= LEAKS - CHANCE


@pytest.mark.parametrize("method", ["clone", "track", "live"])
def test_other_methods_are_refused(victim: StartVictim, truth: Path, method: str) -> None:
    target = victim("leak_graph", truth, 100, 10, command=command("leak_graph"))
    done = run_cli(["scan", target.pid, "--method", method])
    assert done.status == 3
    assert "is a 32-bit program, which only the method copy serves" in " ".join(done.talk.split())


@pytest.mark.parametrize("scene", ["few", "read", "in flight", "answered", "fetched"])
def test_what_the_kernel_holds(victim: StartVictim, scene: str) -> None:
    assert_verdicts(victim("pipe_pointers", scene, command=command("pipe_pointers")), "copy")


def test_each_place_of_a_pointer(victim: StartVictim, tmp_path: Path) -> None:
    module = command("roots_module", "-shared", "-fPIC")
    wrong = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        target = start(victim, folder, command("roots"), module[0])
        wrong.append(wrong_verdicts(target, scan(target.pid, "--all")))
        assert not [verdict for verdict in wrong[-1].values() if verdict.startswith("leak")]
    # A number may be an address by chance, but not of the same block in two processes.
    assert wrong[0].keys() & wrong[1].keys() == set()
    keeper = next(s for s in target.ready["scenes"] if s["name"] == "esi")
    answer = json.loads(run_cli(["explain", target.pid, keeper["address"], "--json"]).out)
    assert "register esi of" in json.dumps(answer)


@pytest.mark.parametrize("words", ["short", "long"])
def test_packed_pointers(victim: StartVictim, words: str) -> None:
    """Parts of two neighbouring short words are an address by chance."""
    program = command("packed_pointer") if words == "short" else None
    target = victim("packed_pointer", command=program)
    report = scan(target.pid, "--all")
    assert wrong_verdicts(target, report) == {}
    reasons = {group["reason"] for group in report["groups"]}
    assert reasons == ({"unaligned-pointer"} if words == "short" else set())
