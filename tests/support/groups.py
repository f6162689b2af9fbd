"""Control groups, in which tests put targets and scans."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from victims import wait_until

_STATES = ("FROZEN", "THAWED")
_ROOT = Path("/sys/fs/cgroup")
_names = (f"reachscan-test-{os.getpid()}-{number}" for number in count())


def _hierarchy(controller: str) -> Path:
    """Return where the groups of a controller are: in version 2 of the interface all in one."""
    first = _ROOT / controller
    return first if first.is_dir() else _ROOT


@contextmanager
def control_group(controller: str) -> Iterator[Path]:
    """Make a group; skip the test where that cannot be done."""
    root = _hierarchy(controller)
    with _group(root) as group:
        limits = (f"{controller}.*max*", "*_in_bytes", "*_quota_us")
        if not any(any(group.glob(limit)) for limit in limits):
            pytest.skip(f"the {controller} controller is not enabled in {root}")
        yield group


@contextmanager
def freezer(unified: bool) -> Iterator[Callable[[int], AbstractContextManager[None]]]:
    """Make a group of either version; what it gives freezes a process for a while."""
    mounts = ("unified", "") if unified else ("freezer",)
    places = [_ROOT / name for name in mounts if (_ROOT / name / "cgroup.procs").exists()]
    if not places:
        pytest.skip(f"no control groups of version {2 if unified else 1} are mounted here")
    with _group(places[0]) as group:
        switch, on, off = ("cgroup.freeze", "1", "0") if unified else ("freezer.state", *_STATES)
        if not (group / switch).exists():
            pytest.skip(f"{places[0]} cannot freeze")

        @contextmanager
        def frozen(pid: int) -> Iterator[None]:
            with moved(pid, group):
                (group / switch).write_text(on)
                wait_until(lambda: _is_frozen(group), "the group is frozen")
                try:
                    yield
                finally:
                    (group / switch).write_text(off)

        yield frozen


def _is_frozen(group: Path) -> bool:
    events = group / "cgroup.events"
    if events.exists():
        return "frozen 1" in events.read_text()
    return (group / "freezer.state").read_text().strip() == _STATES[0]


@contextmanager
def _group(root: Path) -> Iterator[Path]:
    group = root / next(_names)
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: Path) -> None:
    end = time.monotonic() + 10
    while group.exists():
        try:
            group.rmdir()
        except OSError:  # a process that has ended may still be in there for a moment
            assert time.monotonic() < end, f"{group} cannot be removed"


@contextmanager
def moved(pid: int, group: Path) -> Iterator[None]:
    """Put a process into a group, and at the end back into the outermost one."""
    (group / "cgroup.procs").write_text(str(pid))
    yield
    with suppress(ProcessLookupError):  # it may have ended
        (group.parent / "cgroup.procs").write_text(str(pid))


def entering(group: Path) -> list[str]:
    """Return the command that runs another one inside of a group."""
    return ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(group)]


def limit_memory(group: Path, size: int) -> None:
    old = group / "memory.limit_in_bytes"
    (old if old.exists() else group / "memory.max").write_text(str(size))


def limit_processor(group: Path, share: float) -> None:
    period = 100_000  # microseconds
    old = group / "cpu.cfs_quota_us"
    quota = int(share * period)
    if old.exists():
        old.write_text(str(quota))
    else:
        (group / "cpu.max").write_text(f"{quota} {period}")


def membership(pid: int, controller: str) -> str:
    """Return the group of a process that a controller keeps."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    paths = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    kept = [path for names, path in paths.items() if controller in names.split(",")]
    return kept[0] if kept else paths[""]
