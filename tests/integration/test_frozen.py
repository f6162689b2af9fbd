"""Targets that their control group has frozen: nothing of them runs, and yet they are scanned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import StartVictim
from groups import freezer
from scans import leaked, scan
from unharmed import Helper, Watched
from victims import read_truth
from worlds import need_root

pytestmark = need_root


@pytest.mark.parametrize(("unified", "method"), [(True, "copy"), (False, "live")])
def test_auto_takes_what_serves(
    victim: StartVictim, truth: Path, unified: bool, method: str
) -> None:
    """Version 2 lets threads be stopped all the same, version 1 does not."""
    target = victim("leak_graph", truth, 1000, 50)
    with freezer(unified) as frozen, frozen(target.pid):
        report = scan(target.pid, "--all")
    assert report["snapshot"]["method"] == method
    assert "frozen by its control group" in report["snapshot"]["reason"]
    found, lost = leaked(report)[:, 0], read_truth(truth)[:, 0]
    assert np.isin(found, lost).all()
    # The kernel does not tell where the stack of a frozen thread begins. To `live`, all of it
    # counts, with words that calls have left behind.
    assert len(found) == len(lost) or (method == "live" and len(found) > 0)


@pytest.mark.parametrize(("unified", "code"), [(True, "clone-refused"), (False, "unstoppable")])
def test_a_clone_is_refused(victim: StartVictim, tmp_path: Path, unified: bool, code: str) -> None:
    target = victim("checker")
    with freezer(unified) as frozen, frozen(target.pid):
        watched = Watched(target.pid, Helper(tmp_path))
        ending = watched.helper.run(target.pid, "--method", "clone")
        watched.assert_alone()
    assert ending.code == code
    assert "frozen by its control group" in ending.sentence
    watched.assert_unharmed()
