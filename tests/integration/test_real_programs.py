"""Programs that people run: none of them has lost anything while idle."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from idle_programs import COMMANDS, Stage
from idle_servers import SERVERS
from scans import scan


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A directory that every user may write to; pytest's own belong to the tester alone."""
    path = Path(tempfile.mkdtemp(prefix="reachscan-"))
    path.chmod(0o777)
    yield Stage(path)
    shutil.rmtree(path, ignore_errors=True)


# In the memory of a JVM a page may begin as a mapped block does. The report then says that it is
# not complete, so nothing can be expected of it; docs/verdicts.md has what was found.
SCENES = {name: scene for name, scene in {**COMMANDS, **SERVERS}.items() if name != "java"}

KNOWN = {
    # valgrind finds the same three, lost while ruby 3.1.2 compiles what it starts with.
    "ruby": [(24, 1), (40, 2)],
    # In each session of OpenSSH 9.2 that was looked at; no word points there: docs/verdicts.md.
    "sshd session": [(72, 7), (136, 1)],
}
"""What is truly lost: size and count of direct leaks, at most."""


def usable_size(requested: int) -> int:
    """Return what malloc gives for so many bytes."""
    return (requested + 8 + 15) // 16 * 16 - 8


def truly_lost(what: str) -> dict[int, int]:
    if not what.startswith("postgres"):
        return dict(KNOWN.get(what, []))
    # The copy of its environment that it makes first, and forgets when it changes a variable. It is
    # found unless words that were there before point to it: docs/verdicts.md.
    return {usable_size(8 * (len({*os.environ, "PGDATA"}) + 1)): 1}


def unexpected(what: str, report: dict[str, Any]) -> list[dict[str, Any]]:
    known = truly_lost(what)
    counted = [group for group in report["groups"] if group["standing"] == "counts"]
    return [
        group
        for group in counted
        if group["confidence"] == "definite" and group["allocations"] > known.get(group["size"], 0)
    ]


@pytest.mark.parametrize("name", SCENES)
def test_idle_program(name: str, stage: Stage) -> None:
    with SCENES[name](stage) as processes:
        for what, pid in processes.items():
            for method in ("clone", "copy"):
                report = scan(pid, "--method", method)
                assert report["snapshot"]["method"] == method
                assert report["heap"]["allocations"] > 0
                wrong = unexpected(what, report)
                assert wrong == [], f"{what}, by {method}: {json.dumps(wrong, indent=1)}"
