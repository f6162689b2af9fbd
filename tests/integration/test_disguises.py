"""The search that verdicts are checked by: whatever means a block, it finds."""

from __future__ import annotations

import disguises
import numpy as np
import pytest
from conftest import StartVictim
from scans import list_heap


@pytest.mark.parametrize("program", ["doubtful", "other_forms"])
def test_it_finds_each_form(victim: StartVictim, program: str) -> None:
    target = victim(program)
    heap = list_heap(target.pid)
    live = np.stack([heap[:, 0], heap[:, 0] + heap[:, 1]], axis=1)
    sizes = dict(heap[:, :2].tolist())
    meant = [scene for scene in target.ready["scenes"] if scene["expected"] != "leak"]
    for name in {scene["name"] for scene in meant}:
        alike = sorted(int(scene["address"], 16) for scene in meant if scene["name"] == name)
        found = disguises.look_for(target.pid, [(a, sizes[a]) for a in alike], live)
        assert found.hits, f"no word means the blocks of {name!r}"
        # A single number that leads to a block may well do so by chance.
        assert found.suspects() or len(alike) == 1, f"chance explains what means {name!r}"


def test_it_finds_nothing_that_means_a_lost_block(victim: StartVictim) -> None:
    target = victim("doubtful")
    heap = list_heap(target.pid)
    live = np.stack([heap[:, 0], heap[:, 0] + heap[:, 1]], axis=1)
    sizes = dict(heap[:, :2].tolist())
    (lost,) = (s for s in target.ready["scenes"] if s["name"] == "certain")
    address = int(lost["address"], 16)
    assert disguises.look_for(target.pid, [(address, sizes[address])], live).hits == {}


def test_chance_is_told_from_intention() -> None:
    # Two of five blocks are no evidence if one address in fifteen is hit.
    assert disguises.chance_of(2, 5, 270, 4000) > 0.01
    assert disguises.chance_of(5, 5, 270, 4000) < disguises.UNLIKELY
    assert disguises.chance_of(2, 5, 10, 4000) < disguises.UNLIKELY
    assert disguises.chance_of(2000, 12000, 16000, 96000) > 0.4
    assert disguises.chance_of(0, 5, 0, 40) == pytest.approx(1)
