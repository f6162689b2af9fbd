"""A process of a name that no other has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = tmp_path / f"nap{os.getpid()}"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "1000"]) as process:
        yield process
        process.kill()
