"""Scans through `--on`: the answers are those of a scan there, and nothing is left there."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import ssh_server
from conftest import StartVictim
from scans import FAILED, Finished, run_cli
from test_helper_alone import VTABLE, device, on
from unharmed import Helper, Watched, assert_sound, last_words
from victims import REPOSITORY, Victim, build, need, wait_until
from worlds import NOBODY, as_user, need_root, public_copy

from reachscan import errors
from reachscan.capture import processes
from reachscan.capture.options import Question, ScanOptions
from reachscan.recording import model, wire
from reachscan.transport.elsewhere import Elsewhere

pytestmark = need_root

PLACES = ("/dev/shm", "/tmp", "/var/tmp", str(Path.home()))
CUTS = int(os.environ.get("REACHSCAN_CUTS", "2"))
"""How many connections are cut, at moments chosen by chance."""
USES = (
    "cat",
    "chmod",
    "grep",
    "gzip",
    "head",
    "ls",
    "mkdir",
    "readlink",
    "rm",
    "uname",
)
FOLDER = re.compile("reachscan-[0-9a-f]{16}")
NEVER_THE_SAME = ("snapshot", "reachscan")

__all__ = ["device"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/reachscan/.build-id"


@pytest.fixture(scope="module")
def server() -> Iterator[ssh_server.Server]:
    with ssh_server.running() as found:
        yield found


@pytest.fixture
def box(device: Path) -> Path:
    """The device with what a scan from elsewhere uses there, as the smallest of containers has.

    Its shell is a plain one: that of busybox prefers its own commands to those of the folder.
    """
    busybox = need("busybox", "busybox-static")
    (device / "bin").mkdir()
    (device / "tmp").mkdir()
    shutil.copy(need("dash", "dash"), device / "bin/sh")
    for name in USES:
        shutil.copy(busybox, device / "bin" / name)
    return device


def helpers() -> list[str]:
    """Return the processes that run a helper which was sent somewhere."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program = str((folder / "exe").readlink())
        except OSError:
            continue
        if FOLDER.search(program):
            found.append(f"{folder.name}: {program}")
    return found


def left(root: str = "") -> list[str]:
    """Return what a scan from elsewhere has left."""
    folders = [p for f in PLACES for p in Path(root + f).glob("reachscan-*")]
    return helpers() + [str(p) for p in folders if FOLDER.fullmatch(p.name)]


def assert_nothing_left(root: str = "") -> None:
    wait_until(lambda: not left(root), "nothing is left there")


def inside(target: Victim) -> str:
    return f"exec:{need('nsenter', 'util-linux')} --target {target.pid} --mount --root"


def asked(*arguments: object, path: Mapping[str, str] | None = None) -> dict[str, Any]:
    done = run_cli([*arguments, "--json"], path)
    assert done.status in (0, 1), done.talk
    answer: dict[str, Any] = json.loads(done.out)
    answer["target"].pop("exe")  # as its path is seen from where it was looked at
    return {key: value for key, value in answer.items() if key not in NEVER_THE_SAME}


def assert_refused(done: Finished, *words: str, status: int = FAILED) -> None:
    assert done.status == status, done
    assert done.out == "" and done.talk.count("\n") == 1, done.talk
    for word in words:
        assert word in done.talk, done.talk


def test_the_same_answers_as_there(
    victim: StartVictim, box: Path, cache: Path, tmp_path: Path
) -> None:
    target = victim("leaky_sessions", command=on(box, "/program", "once"))
    where = inside(target)
    saved = tmp_path / "saved.rsc"
    report = asked("scan", "--on", where, target.pid, "--save", saved)
    assert report == asked("scan", target.pid)
    assert VTABLE in str(report["groups"])
    assert asked("report", saved)["groups"] == report["groups"]
    assert len([path for path in cache.rglob("*") if path.is_file()]) == 1  # what was needed
    block = report["groups"][0]["example"]["address"]
    assert asked("explain", "--on", where, target.pid, block) == asked("explain", target.pid, block)
    assert left(str(box)) == []


def test_several_scans_through_one_connection(victim: StartVictim, box: Path) -> None:
    # Other tests may run a program of the usual name in their boxes at the same time.
    shutil.copy(box / "program", box / "watched_here")
    target = victim("leaky_sessions", command=on(box, "/watched_here", "once"))
    shutil.copy(need("busybox", "busybox-static"), box / "bin/sh")
    where = inside(target)
    words = ["--count", "2", "--every", "0.01", "--confirm", "2", "--confirm-every", "0.01"]
    watched = run_cli(["watch", "--on", where, "watched_here", *words])
    assert watched.status == 0 and "2 scans" in watched.out, watched


@pytest.mark.parametrize("shell", ["bash", "busybox", "dash", "mksh"])
def test_any_shell(victim: StartVictim, tmp_path: Path, shell: str) -> None:
    """That of Android is mksh."""
    target = victim("leaky_sessions", "once")
    (tmp_path / "sh").symlink_to(need(shell, {"busybox": "busybox-static"}.get(shell, shell)))
    where = f"exec:env PATH={tmp_path}:{os.environ['PATH']}"
    with closing(Elsewhere(where, None, verbose=False)) as there:
        heard: list[model.Progress] = []
        for phases in (["send helper", "receive"], ["receive"]):
            with there.scan(target.pid, ScanOptions(), heard.append) as frames:
                assert [frame.type for frame in frames][-1] == wire.FINAL
            assert list(dict.fromkeys(progress.phase for progress in heard)) == phases
            assert heard[-1].done > 0
            heard.clear()
        assert helpers() == []
        with pytest.raises(errors.NoSuchProcessError):
            there.life(1 << 22)
    assert left() == []


@pytest.mark.parametrize("said", [r"Welcome\n", r"\033]0;build7\007"], ids=["greeting", "title"])
def test_login_scripts_that_talk(victim: StartVictim, tmp_path: Path, said: str) -> None:
    target = victim("leaky_sessions", "once")
    login = tmp_path / "login"
    login.write_text(f"printf '{said}'\nexec \"$@\"\n")
    assert asked("--on", f"exec:sh {login}", target.pid) == asked(target.pid)


def test_files_of_a_sysroot_need_not_be_fetched(
    victim: StartVictim, box: Path, cache: Path
) -> None:
    target = victim("leaky_sessions", command=on(box, "/program", "once"))
    report = asked("scan", "--on", inside(target), target.pid, "--sysroot", box)
    assert VTABLE in str(report["groups"])
    assert not cache.exists()
    refused = run_cli(["scan", target.pid, "--sysroot", box])
    assert refused.status == 2 and "--sysroot is for --on" in refused.talk


def test_a_name_means_what_it_means_here(victim: StartVictim, box: Path) -> None:
    name = f"own{os.getpid()}"  # no other test runs a process of that name
    (box / "program").rename(box / name)
    target = victim("leaky_sessions", command=on(box, f"/{name}", "once"))
    with closing(Elsewhere(inside(target), None, verbose=False)) as there:
        for wanted in (str(target.pid), name, f"/{name}", f"/{name} once"):
            assert there.find(wanted) == processes.find(wanted) == [target.pid]
        with pytest.raises(errors.NoSuchProcessError, match=f"no process is called '{name[1:]}'"):
            there.resolve(name[1:])
        other = victim("leaky_sessions", command=on(box, f"/{name}", "once"))
        with pytest.raises(errors.AmbiguousNameError, match="2 processes are called") as several:
            there.resolve(name)
        assert f"`reachscan {name} --on '{inside(target)}' --all-p" in several.value.next_step
        for pid in (target.pid, other.pid):
            assert f"{pid}  /{name} once" in str(several.value.details)


def test_a_life_that_ends(victim: StartVictim) -> None:
    target = victim("leaky_sessions", "once")
    with closing(Elsewhere("exec:env", None, verbose=False)) as there:
        with there.life(target.pid) as life:
            assert not life.ends_within(0) and not life.has_successor()
            target.quit()
            assert life.ends_within(0) and not life.has_successor()
        with pytest.raises(errors.NoSuchProcessError):
            there.life(1 << 22)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("exec:false", ("no shell answers at exec:false", "status 1")),
        ("exec:sh -c 'echo no route >&2; exit 7'", ("no route",)),
        ("exec:/no/such/program", ("cannot start /no/such/program",)),
    ],
)
def test_where_nothing_answers(where: str, words: tuple[str, ...]) -> None:
    assert_refused(run_cli(["scan", "--on", where, os.getpid()]), *words)


def test_where_no_such_process_is() -> None:
    assert_refused(run_cli(["scan", "--on", "exec:env", 1 << 22]), "there is no process 4194304")


def test_a_processor_without_a_helper(victim: StartVictim, box: Path) -> None:
    target = victim("leaky_sessions", command=on(box, "/program", "once"))
    (box / "bin/uname").unlink()
    (box / "bin/uname").write_text("#!/bin/sh\necho riscv64\n")
    (box / "bin/uname").chmod(0o755)
    done = run_cli(["scan", "--on", inside(target), target.pid])
    assert_refused(done, "no helper for riscv64")


def test_a_shell_that_lacks_something(victim: StartVictim, box: Path) -> None:
    target = victim("leaky_sessions", command=on(box, "/program", "once"))
    (box / "bin/gzip").unlink()
    assert asked("scan", "--on", inside(target), target.pid)["leaks"]["allocations"] == 2400
    (box / "bin/head").unlink()
    done = run_cli(["scan", "--on", inside(target), target.pid])
    assert_refused(done, "lacks", "head -c", "docs/devices.md")


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        ("noexec,mode=1777", "may not run programs"),
        ("ro", "may not write"),
        ("size=64k", "no room"),
    ],
    ids=["noexec", "read-only", "full"],
)
def test_no_place_for_the_helper(victim: StartVictim, mount: str, why: str) -> None:
    target = victim("leaky_sessions", "once")
    places = " ".join(PLACES[:3])
    script = f"for place in {places}; do mount -t tmpfs -o {mount} none $place || exit; done; "
    script += f"export HOME=/nowhere; cd /; exec {' '.join(as_user(NOBODY))} sh"
    unshare = need("unshare", "util-linux")
    done = run_cli(["scan", "--on", f"exec:{unshare} --mount sh -c '{script}'", target.pid])
    assert_refused(done, "the helper finds no place", why, "TMPDIR")


def test_ssh(victim: StartVictim, server: ssh_server.Server) -> None:
    target = victim("leaky_sessions", "once")
    assert asked("scan", "--on", "ssh:may", target.pid, path=server.path) == asked(
        "scan", target.pid
    )
    assert_nothing_left()


def test_ssh_of_a_user_who_may_not_trace(victim: StartVictim, server: ssh_server.Server) -> None:
    target = victim("leaky_sessions", "once")
    done = run_cli(["scan", "--on", "ssh:may-not", target.pid], server.path)
    assert_refused(done, "not permitted to look into process", "--on 'exec:ssh HOST sudo'")
    with public_copy(build("leaky_sessions")) as program:
        own = victim("leaky_sessions", command=as_user(NOBODY, str(program), "once"))
        report = asked("scan", "--on", "ssh:may-not", own.pid, path=server.path)
        assert report["leaks"]["allocations"] == 2400
        own.quit()
    assert_nothing_left()


def scan_through(start: str, totals: Path, pid: int, up: int = 0, down: int = 0) -> str:
    """Scan over a connection that is cut after so many bytes; return what was told of that."""
    relay = REPOSITORY / "tests/support/cut_connection.py"
    where = f"exec:{sys.executable} {relay} {totals} {up} {down} {start}"
    with closing(Elsewhere(where, None, verbose=False)) as there:
        try:
            with there.scan(pid, ScanOptions(question=Question("heap")), None) as frames:
                assert [frame.type for frame in frames][-1] == wire.FINAL
        except (errors.ConnectionLostError, errors.UnreachableError) as error:
            return error.sentence
    return ""


def assert_cuts_do_no_harm(target: Victim, start: str, tmp_path: Path) -> None:
    """At any moment: while the script or the helper is sent, or while the result comes home."""
    totals = tmp_path / "totals"
    assert scan_through(start, totals, target.pid) == ""
    wait_until(totals.exists, "the relay has ended")
    most = [int(number) for number in totals.read_text().split()]
    watched = Watched(target.pid, Helper(tmp_path))
    chance = random.Random(CUTS)
    for number in range(CUTS):
        way = number % 2
        cut = {("up", "down")[way]: chance.randrange(1, most[way])}
        said = scan_through(start, totals, target.pid, **cut)
        print(f"cut after {cut}: {said}")
        assert "ended with status -9" in said
        assert_nothing_left()
        watched.wait_until_free()
        watched.assert_unharmed()
    assert_sound(last_words(target), cut_short=CUTS)


def test_a_connection_that_is_cut(
    victim: StartVictim, server: ssh_server.Server, tmp_path: Path
) -> None:
    start = f"{server.program}/ssh -T may exec"
    assert_cuts_do_no_harm(victim("checker", 0), start, tmp_path)


def test_an_interrupted_scan(
    victim: StartVictim, server: ssh_server.Server, tmp_path: Path
) -> None:
    """The helper there is stuck, so that only the end of the connection can tell it."""
    target = victim("checker", 0)
    watched = Watched(target.pid, Helper(tmp_path))
    stuck = tmp_path / "stuck"
    watched.helper.write_stalling(stuck, call=40)
    words = ["scan", "--on", "ssh:may", str(target.pid)]
    with subprocess.Popen(
        [sys.executable, "-m", "reachscan", *words],
        cwd=REPOSITORY,
        env={**os.environ, **server.path, "REACHSCAN_HELPER": str(stuck)},
        stderr=subprocess.PIPE,
    ) as process:
        assert watched.helper.stalls(process)
        process.terminate()
        assert process.wait() == 130
    assert_nothing_left()
    watched.wait_until_free()
    watched.assert_unharmed()
    assert_sound(last_words(target), cut_short=1)
