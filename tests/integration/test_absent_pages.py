"""Pages that are not there stay so: asking for one would allocate it, or wait for the target."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import StartVictim
from older_kernels import recording_before_6_7
from scans import run_cli, scan
from unharmed import METHODS
from victims import Victim, need
from worlds import must_work, need_root

SHARED = ("memfd", "anonymous", "system_v", "file")
HUGE_PAGES = 40
MEMFD_SECRET = 447


def wrong_verdicts(target: Victim, report: dict[str, Any]) -> dict[str, str]:
    said = {int(block["address"], 16): block["confidence"] for block in report["allocations"]}
    scenes = {int(scene["address"], 16): scene["name"] for scene in target.ready["scenes"]}
    return {scenes.get(address, hex(address)): verdict for address, verdict in said.items()}


def scan_all(target: Victim, method: str) -> dict[str, Any]:
    return scan(target.pid, "--all", "--method", method)


@pytest.mark.parametrize("method", METHODS)
def test_pages_that_the_target_serves(victim: StartVictim, method: str) -> None:
    """The thread that serves them is stopped: who asks for one waits without end."""
    target = victim("absent_pages", "served")
    assert wrong_verdicts(target, scan_all(target, method)) == {}


@need_root
def test_a_server_of_pages_that_is_told_of_forks(victim: StartVictim) -> None:
    """Each fork waits for it, and so would a clone."""
    target = victim("absent_pages", "forks")
    report = scan(target.pid, "--all")
    assert wrong_verdicts(target, report) == {}
    assert report["snapshot"]["method"] == "copy" and "userfaultfd" in report["snapshot"]["reason"]


@contextmanager
def mount_point(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    try:
        yield folder
    finally:
        if folder.is_mount():
            subprocess.run([need("umount", "mount"), "--lazy", str(folder)], check=True)
        folder.rmdir()


@need_root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="there is no /dev/fuse")
@pytest.mark.parametrize("method", METHODS)
def test_files_that_the_target_serves(victim: StartVictim, tmp_path: Path, method: str) -> None:
    with mount_point(tmp_path / "own") as folder:
        target = victim("own_file_system", folder)
        assert wrong_verdicts(target, scan_all(target, method)) == {}
        target.quit()


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("method", METHODS)
def test_shared_memory_does_not_grow(victim: StartVictim, kind: str, method: str) -> None:
    path = [Path(f"/dev/shm/reachscan-test-{method}")] if kind == "file" else []
    try:
        target = victim("absent_pages", kind, *path)
        assert wrong_verdicts(target, scan_all(target, method)) == {}
        target.quit()
    finally:
        for file in path:
            file.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["served", "memfd", "anonymous"])
@pytest.mark.parametrize("method", ["clone", "copy", "live"])
def test_older_kernel(victim: StartVictim, kind: str, method: str) -> None:
    """Before Linux 6.7, the kernel describes every page, be there one or not."""
    target = victim("absent_pages", kind)
    assert recording_before_6_7(target.pid, "--method", method).leaks.address.tolist() == []


@contextmanager
def huge_pages(folder: Path) -> Iterator[Path]:
    """Set huge pages aside for a while, in a file system of their own at that place."""
    setting = Path("/proc/sys/vm/nr_hugepages")
    before = int(setting.read_text())
    setting.write_text(str(before + HUGE_PAGES))
    try:
        if int(setting.read_text()) < before + HUGE_PAGES:
            pytest.skip(f"the kernel has no {HUGE_PAGES} huge pages to spare")
        with mount_point(folder):
            must_work(["mount", "-t", "hugetlbfs", "none", str(folder)], "a hugetlbfs")
            yield folder
    finally:
        setting.write_text(str(before))


@need_root
@pytest.mark.parametrize("method", METHODS)
def test_huge_pages_below_dev(victim: StartVictim, method: str) -> None:
    """Where DPDK, for one, keeps its memory. A path does not make a device."""
    folder = Path(f"/dev/reachscan-test-{method}")
    with huge_pages(folder):
        target = victim("absent_pages", "huge", folder / "pages")
        assert wrong_verdicts(target, scan_all(target, method)) == {}
        target.quit()


@pytest.mark.parametrize("method", METHODS)
def test_secret_memory(victim: StartVictim, method: str) -> None:
    """Only processes that map it can read it, and a clone is one."""
    need_secret_memory()
    target = victim("absent_pages", "secret")
    if method == "clone":
        assert wrong_verdicts(target, scan_all(target, method)) == {}
        return
    done = run_cli([target.pid, "--json", "--all", "--method", method])
    report = json.loads(done.out)
    assert report["complete"] is False
    assert "incomplete-memory" in {warning["code"] for warning in report["warnings"]}
    assert set(wrong_verdicts(target, report).items()) == {("own_page", "possible")}
    assert {group["reason"] for group in report["groups"]} == {"unreadable-memory"}


def need_secret_memory() -> None:
    descriptor = ctypes.CDLL(None).syscall(MEMFD_SECRET, 0)
    if descriptor < 0:
        pytest.skip("this kernel has no memfd_secret() (Linux 5.14, secretmem.enable=1)")
    os.close(descriptor)
