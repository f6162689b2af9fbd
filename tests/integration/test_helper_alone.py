"""The helper without Python: what it writes on a device is read at home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartVictim
from scans import FAILED, HELPER, PATIENCE, run_cli
from victims import build, need, wait_blocked
from worlds import make_root, must_work, need_root, public_folder

from reachscan.naming import elf_files
from reachscan.recording import wire

VTABLE = "program+vtable for shop::PlainSession"


@pytest.fixture
def device() -> Iterator[Path]:
    """A root folder with a program and its libraries, the helper, and nothing else."""
    with public_folder() as root:
        make_root(root, build("leaky_sessions", ["-g"]))
        shutil.copy(HELPER, root / "reachscan-helper")
        for folder in ("proc", "dev"):
            (root / folder).mkdir()
        yield root


def on(device: Path, program: str, *arguments: str) -> list[str]:
    """Return the command that runs a program where the device is all that there is."""
    unshare = [need("unshare", "util-linux"), "--mount"]
    must_work([*unshare, "true"], "a mount namespace")
    script = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    return [*unshare, "sh", "-c", script, str(device), program, *arguments]


def scanned_there(pid: int, result: Path) -> None:
    enter = [need("nsenter", "util-linux"), "--target", str(pid), "--mount", "--root"]
    with result.open("wb") as file:
        done = subprocess.run(
            [*enter, "/reachscan-helper", str(pid)],
            stdout=file,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")


def report(scan: Path, *options: object) -> dict[str, Any]:
    done = run_cli(["report", scan, "--json", *options])
    assert done.status == 1, done.talk
    found: dict[str, Any] = json.loads(done.out)
    return found


def by_build_ids(root: Path, folder: Path) -> Path:
    """Fill a folder with the files of a root, called by nothing but their build ids."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "reachscan-helper":
            with elf_files.opened(lambda path=path: path.open("rb")) as elf:  # type: ignore[misc]
                name = elf_files.build_id(elf).hex()
            place = folder / ".build-id" / name[:2] / name[2:]
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    return folder


@need_root
def test_what_it_writes_is_named_at_home(victim: StartVictim, device: Path, tmp_path: Path) -> None:
    target = victim("leaky_sessions", command=on(device, "/program", "once"))
    live = json.loads(run_cli(["scan", target.pid, "--json"]).out)
    raw = tmp_path / "scan.rsc"
    scanned_there(target.pid, raw)
    target.quit()

    for sysroot in (device, by_build_ids(device, tmp_path / "symbols")):
        found = report(raw, "--sysroot", sysroot)
        assert found["groups"] == live["groups"]
        assert (found["heap"], found["leaks"]) == (live["heap"], live["leaks"])
        assert found["warnings"] == live["warnings"] == []
        assert VTABLE in str(found["groups"])
    nameless = report(raw)
    assert nameless["leaks"] == live["leaks"]
    assert {warning["code"] for warning in nameless["warnings"]} == {"no-symbols"}


def said_by(*words: object) -> tuple[int, str]:
    done = subprocess.run(
        [HELPER, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "nothing to scan was named"),
        (("init",), "'init' is no process id"),
        ((1, 2), "only one process can be scanned, not '2' too"),
        (("--speed", 1), "there is no option --speed"),
        ((1, "--nice"), "--nice needs a value"),
        ((1, "--nice", 99), "'99' is no number from 0 to 19"),
        ((1, "--explain", "here"), "'here' is no address"),
        ((1, "--core", "core"), "a process and a core file"),
    ],
)
def test_one_sentence_for_words_that_make_no_sense(words: tuple[object, ...], why: str) -> None:
    status, said = said_by(*words)
    assert status == 2
    assert said.startswith(f"reachscan-helper: {why}") and said.count("\n") == 1


def test_nothing_binary_goes_to_a_terminal() -> None:
    ours, theirs = os.openpty()
    done = subprocess.run(
        [HELPER, "1"], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 2
    assert "not for a terminal" in done.stderr and "> scan.rsc" in done.stderr


def test_a_failure_is_said_and_kept(victim: StartVictim, tmp_path: Path) -> None:
    target = victim("ground_truth", tmp_path / "truth", 2, 2, 100)
    thread = max(int(task.name) for task in Path(f"/proc/{target.pid}/task").iterdir())
    raw = tmp_path / "scan.rsc"
    with raw.open("wb") as file:
        done = subprocess.run(
            [HELPER, str(thread)], stdout=file, stderr=subprocess.PIPE, text=True, check=False
        )
    sentence = f"{thread} is a thread of process {target.pid}"
    assert (done.returncode, done.stderr) == (1, f"reachscan-helper: {sentence}\n")
    reported = run_cli(["report", raw])
    assert reported.status == FAILED and sentence in reported.talk


def test_a_full_disk_is_said(victim: StartVictim) -> None:
    target = victim("leaky_sessions", "once")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [HELPER, str(target.pid)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1


def test_it_ends_when_its_lifeline_hangs_up(victim: StartVictim) -> None:
    """It is stalled behind its first bytes, so that nothing else tells it."""
    target = victim("leaky_sessions", "once")
    ours, theirs = os.pipe()
    with subprocess.Popen(
        [HELPER, "--pid", str(target.pid), "--lifeline", str(ours), "--stall-at-call", "3"],
        stdout=subprocess.PIPE,
        pass_fds=[ours],
    ) as helper:
        os.close(ours)
        assert helper.stdout is not None
        assert len(helper.stdout.read(wire.HELLO.size)) == wire.HELLO.size
        wait_blocked(helper.pid)
        os.close(theirs)
        assert helper.wait(PATIENCE) == 1
    target.quit()
