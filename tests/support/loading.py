"""Reads saved scans of which a test knows what they are about."""

from __future__ import annotations

from pathlib import Path

from reachscan.result import LeakScan
from reachscan.scanning import load


def load_leaks(path: Path | str) -> LeakScan:
    scan = load(path)
    assert isinstance(scan, LeakScan)
    return scan
