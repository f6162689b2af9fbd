"""Every place a pointer can be in keeps its block alive, and no other place does."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import StartVictim
from scans import leaked, scan


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_each_place(victim: StartVictim, tmp_path: Path, method: str) -> None:
    target = victim("roots", tmp_path / "scratch")
    found = set(leaked(scan(target.pid, "--all", "--method", method))[:, 0].tolist())
    names = {int(scene["address"], 16): scene for scene in target.ready["scenes"]}
    wrong = {
        scene["name"]: f"should be {scene['expected']}"
        for address, scene in names.items()
        if (address in found) != (scene["expected"] == "leak")
    }
    assert wrong == {}
    assert [hex(a) for a in found if a not in names] == []
