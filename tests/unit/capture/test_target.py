"""What is said about a target before it is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from victims import build, running

from reachscan import errors
from reachscan.capture import target
from reachscan.capture.target import Access


@pytest.mark.parametrize("pid", [0, 2**22 + 1, 2**31, 10**30])
def test_ids_that_cannot_be(pid: int) -> None:
    with pytest.raises(errors.NoSuchProcessError, match=str(pid)):
        target.check(pid)


def test_an_ordinary_process_is_fine(sleeper: subprocess.Popen[bytes]) -> None:
    target.check(sleeper.pid)


def test_ourselves() -> None:
    with pytest.raises(errors.UnscannableError, match="itself"):
        target.check(os.getpid())


def test_a_thread() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    assert thread.native_id
    with pytest.raises(errors.UnscannableError, match=f"thread of process {os.getpid()}"):
        target.check(thread.native_id)
    done.set()
    thread.join()


def test_a_zombie() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(errors.UnscannableError, match="has exited"):
            target.check(child.pid)


def test_a_process_whose_main_thread_has_ended() -> None:
    with (
        running([str(build("leaderless"))]) as victim,
        pytest.raises(errors.UnscannableError, match="main thread") as caught,
    ):
        target.check(victim.pid)
    assert "has ended while others run on" in caught.value.sentence


STATUS = "Name:\t{name}\nState:\tS (sleeping)\nTgid:\t77\nPPid:\t2\nTracerPid:\t{tracer}\n"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a /proc of our own, with process 77 in it."""
    monkeypatch.setattr(target, "_PROC", tmp_path)
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "status").write_text(STATUS.format(name="x", tracer=0))
    (folder / "stat").write_text("77 (odd) name) S 2 0 0 0 -1 4194304 0 0")
    (folder / "mem").write_bytes(b"")
    (folder / "exe").write_bytes(b"\x7fELF\2\1\1" + bytes(11) + b"\x3e\0")
    return folder


def test_a_made_up_process_is_fine(proc: Path) -> None:
    target.check(77)


def test_a_kernel_thread(proc: Path) -> None:
    (proc / "stat").write_text(f"77 (kworker/0:1) S 2 0 0 0 -1 {0x00200040} 0 0")
    with pytest.raises(errors.UnscannableError, match="kernel thread"):
        target.check(77)


@pytest.mark.parametrize(
    ("exe", "says"),
    [
        (b"\x7fELF\1\1\1" + bytes(11) + b"\x14\0", "32-bit"),  # of a PowerPC
        (b"\x7fELF\2\1\1" + bytes(11) + b"\xb7\0", "another processor"),
        (b"#!", "not an ELF file"),
    ],
)
def test_foreign_programs(proc: Path, exe: bytes, says: str) -> None:
    (proc / "exe").write_bytes(exe)
    with pytest.raises(errors.UnsupportedTargetError, match=says):
        target.check(77)


OWN = Access(
    uid=1000,
    target_uid=1000,
    dumpable=True,
    privileged=False,
    capable=False,
    same_namespace=True,
    yama=0,
)


@pytest.mark.parametrize(
    ("access", "why", "what_to_do"),
    [
        (OWN._replace(yama=3), "every attach", "reboot"),
        (OWN._replace(yama=1), "ptrace_scope is 1", "sysctl"),
        (OWN._replace(yama=2), "ptrace_scope is 2", "sudo"),
        (OWN._replace(target_uid=33), "belongs to user 33", "sudo"),
        (OWN._replace(dumpable=False), "not dumpable", "sudo"),
        (OWN._replace(dumpable=False, privileged=True), "capabilities", "sudo"),
        (OWN._replace(uid=0), "without the capability", "--cap-add"),
        (OWN._replace(uid=0, capable=True, same_namespace=False), "user namespace", "host"),
        (OWN._replace(uid=0, capable=True, same_namespace=None), "user namespace", "host"),
        (OWN._replace(uid=0, capable=True), "policy", "--cap-add"),
        (OWN, "more rights", "sudo"),
    ],
)
def test_a_refusal_is_explained(access: Access, why: str, what_to_do: str) -> None:
    said = target.diagnose(access)
    assert why in said[0]
    assert what_to_do in said[1]


_SHOW_HINT = """import os
from reachscan.capture import target
print(os.getcwd(), target.root_command())
"""


@pytest.mark.parametrize("how", ["{script}", "{python} {module}", "{python} -m {name}"])
def test_the_command_that_is_advised_works_with_the_path_of_sudo(tmp_path: Path, how: str) -> None:
    script, sudo = tmp_path / "bin of venv" / "reachscan", tmp_path / "bin" / "sudo"
    module = tmp_path / "shown.py"
    for path in (script, sudo):
        path.parent.mkdir()
    script.write_text(f"#!{sys.executable}\n{_SHOW_HINT}")
    module.write_text(_SHOW_HINT)
    sudo.write_text('#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin exec "$@"\n')
    script.chmod(0o755)
    sudo.chmod(0o755)
    words = {"script": f"'{script}'", "python": sys.executable, "module": module, "name": "shown"}

    def said(command: str) -> str:
        search = {**os.environ, "PATH": f"{sudo.parent}:/usr/bin:/bin"}
        return subprocess.check_output(["sh", "-c", command], cwd=tmp_path, env=search, text=True)

    first = said(how.format(**words) + " 'two words' 4711")
    assert first.startswith(f"{tmp_path} sudo ") and first.endswith("'two words' 4711\n")
    assert said(first.removeprefix(f"{tmp_path} ")) == first
