"""What `make` says where something is missing that it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def prerequisites(*settings: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", "-C", str(ROOT), "prerequisites", *settings]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_everything_is_there() -> None:
    done = prerequisites()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_that_is_missing_is_named_at_once() -> None:
    done = prerequisites("PYTHON=no-python", "CXX=no-compiler")
    assert done.returncode != 0
    assert "no-python is missing" in done.stdout and "no-compiler is missing" in done.stdout
    assert "apt install python3 python3-venv g++ libc6-dev linux-libc-dev" in done.stdout


def test_what_is_there_but_not_enough(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = prerequisites(f"PYTHON={old}", f"CXX={old}")
    assert f"{old} is older than 3.9" in done.stdout
    assert f"{old} cannot link statically" in done.stdout
    done = prerequisites(f"PYTHON={sys.executable}", f"CXX={old}")
    assert "python3" not in done.stdout and "cannot link statically" in done.stdout
