"""What owns a container stands for it, wherever its parts are; equal owners are one kind."""

from __future__ import annotations

from conftest import StartVictim
from scans import scan

COUNT = 1000


def usable(size: int) -> int:
    """Return the usable bytes of glibc's block for a request: a multiple of 16, and 8."""
    return size + (8 - size) % 16


def test_each_owner_is_one_kind_under_churn(victim: StartVictim) -> None:
    target = victim("owners", COUNT)
    found = [(g["size"], g["allocations"]) for g in scan(target.pid)["groups"]]
    assert sorted(found) == sorted((usable(size), COUNT) for size in target.ready["sizes"])
