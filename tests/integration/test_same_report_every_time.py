"""A program that does the same loses the same, wherever the kernel puts its memory.

Some of what a report says is told by words that look like text, numbers or pointers. Which of them
do must not depend on addresses, which are others at every start.

REACHSCAN_SAME_STARTS sets how often each program is started (20 for the long form).
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from conftest import StartVictim
from loading import load_leaks
from victims import wait_blocked

import reachscan
from reachscan.grouping.groups import Branch, Group

STARTS = int(os.environ.get("REACHSCAN_SAME_STARTS", "3"))

PROGRAMS = {
    "containers": (2, 8),
    "leak_graph": ("truth", 2000, 30),
    "leaky_sessions": ("once",),
    "owners": (20,),
    "recycled_kinds": (300,),
}


def branches(tree: tuple[Branch, ...]) -> tuple[object, ...]:
    return tuple((*branch[:-1], branches(branch.below)) for branch in tree)


def likeness(group: Group) -> tuple[object, ...]:
    """Return all that is said of a group but for where its example lies and what that holds."""
    sizes = tuple(sorted(group.sizes, key=str))
    return (
        *(group.type, group.shape, group.signature, group.key, group.reason),
        *(group.allocations, group.indirect_allocations, sizes, branches(group.tree)),
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_start_gives_the_same_groups(victim: StartVictim, tmp_path: Path, name: str) -> None:
    arguments = [str(tmp_path / word) if word == "truth" else word for word in PROGRAMS[name]]
    reports = []
    for _ in range(STARTS):
        target = victim(name, *arguments)
        wait_blocked(target.pid)  # registers of a running thread hold whatever it used last
        reports.append(Counter(map(likeness, reachscan.scan(target.pid).groups(1000))))
        target.quit()
    assert reports[0]
    for report in reports[1:]:
        assert report == reports[0], (report - reports[0], reports[0] - report)


def test_what_a_block_held_before_does_not_tell_blocks_of_one_kind_apart(
    victim: StartVictim,
) -> None:
    """Strings that are in their owner or not, texts of all lengths, blocks with room to spare."""
    count = 300
    groups = reachscan.scan(victim("recycled_kinds", count).pid).groups(100)
    found = {(group.size, group.key): group.allocations for group in groups}
    # A few hang below stale pointers, or look different for one.
    assert found[88, "88: heap | value | value | value"] > 0.8 * count
    assert found[24, "24: value | value | heap"] > 0.8 * count
    texts = [group for group in groups if group.shape == "text" and group.key == "text"]
    assert len(texts) == 1 and texts[0].allocations > 0.8 * count
    assert len(texts[0].sizes) >= 9


def test_a_scan_that_keeps_no_contents_gives_the_same_groups(
    victim: StartVictim, tmp_path: Path
) -> None:
    pid, kept = victim("recycled_kinds", 300).pid, tmp_path / "kept.rsc"
    whole = reachscan.scan(pid).groups(1000)
    reachscan.scan(pid, reachscan.ScanOptions(contents=0, save=kept))
    assert Counter(map(likeness, load_leaks(kept).groups(1000))) == Counter(map(likeness, whole))
