"""Scans in a real container of podman, and on a real daemon of adb, where these are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from scans import FAILED, run_cli
from test_elsewhere import asked, box, cache, left
from test_helper_alone import VTABLE, device
from victims import build, need, wait_until
from worlds import need_root, only_descendant, public_folder

pytestmark = need_root

__all__ = ["box", "cache", "device"]

CONFIGURATION = '[containers]\ndefault_ulimits = []\n[engine]\nevents_logger = "none"\n'
PLATFORM_TOOLS = "/usr/lib/android-sdk/platform-tools"
SERIAL = "127.0.0.1:5555"
ADB_PORT = f":{5037:04X} "
POLICY = '{"default": [{"type": "insecureAcceptAnything"}]}'


@pytest.fixture
def podman(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a podman that keeps everything to itself, and that `--on podman:` uses."""
    real, runtime = need("podman", "podman runc"), need("runc", "runc")
    with public_folder() as own:  # whose path is short, as podman wants it
        (own / "containers.conf").write_text(CONFIGURATION)
        folders = f"--root {own}/store --runroot {own}/run --tmpdir {own}/tmp"
        program = own / "podman"
        program.write_text(
            f"#!/bin/sh\nexec env CONTAINERS_CONF={own}/containers.conf {real} {folders} "
            f'--storage-driver vfs --cgroup-manager cgroupfs --runtime {runtime} "$@"\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
        yield str(program)


def said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


@pytest.fixture
def container(podman: str, box: Path, tmp_path: Path) -> Iterator[str]:
    """Start the program in a container as podman makes them: few rights, a filter of calls."""
    shutil.copy(need("busybox", "busybox-static"), box / "bin/sleep")
    image, policy = tmp_path / "image.tar", tmp_path / "policy.json"
    said_by("tar", "-C", str(box), "-cf", str(image), ".")
    policy.write_text(POLICY)
    said_by(podman, "import", "--signature-policy", str(policy), str(image), "box")
    try:
        run = (podman, "run", "-d", "--name", "box", "--network", "none", "box")
        said_by(*run, "/bin/sh", "-c", "sleep 1000 | /program once")
        wait_until(lambda: "ready" in said_by(podman, "logs", "box"), "the program is ready")
        yield "podman:box"
    finally:
        said_by(podman, "rm", "-f", "-t", "0", "box")


def test_a_container(container: str, podman: str) -> None:
    report = asked("scan", "--on", container, "program")
    assert report["leaks"]["allocations"] == 2400
    assert VTABLE in str(report["groups"])
    assert said_by(podman, "exec", "box", "ls", "/dev/shm", "/tmp").split() == [
        "/dev/shm:",
        "/tmp:",
    ]
    nobody = run_cli(["scan", "--on", "podman:boxes", 1])
    assert nobody.status == FAILED and 'no container with name or ID "boxes"' in nobody.talk


DAEMON = """
mount -t proc proc /proc && ip link set lo up && exec "$0" >"$1" 2>&1
"""


@pytest.fixture
def device_of_adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Start a daemon in namespaces of its own; `adb` is a client that can see no other one."""
    client, unshare = need("adb", "adb"), need("unshare", "util-linux")
    daemon = shutil.which("adbd", path=f"{os.environ['PATH']}:{PLATFORM_TOOLS}")
    if daemon is None:
        pytest.skip("adbd is not installed (Debian package adbd, since Debian 13)")
    need("ip", "iproute2")
    log = tmp_path / "log"
    spaces = [unshare, "--net", "--pid", "--mount", "--fork", "--kill-child"]
    with subprocess.Popen([*spaces, "sh", "-c", DAEMON, daemon, str(log)]) as process:
        try:
            wait_until(
                lambda: log.exists() and "adbd started" in log.read_text(), "the daemon listens"
            )
            first = only_descendant(process.pid)
            adb = tmp_path / "adb"
            enter = f"nsenter --target {first} --net --mount --pid"
            adb.write_text(f'#!/bin/sh\nexec {enter} {client} "$@"\n')
            adb.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            with subprocess.Popen([adb, "nodaemon", "server"], stderr=subprocess.DEVNULL) as server:
                wait_until(lambda: ADB_PORT in listening(first), "the server listens")
                said_by(str(adb), "connect", SERIAL)
                yield f"adb:{SERIAL}"
                server.kill()
        finally:
            process.kill()


def listening(pid: int) -> str:
    """Return the table of sockets that a process sees."""
    return "".join(Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6"))


def test_a_device_of_adb(device_of_adb: str, tmp_path: Path) -> None:
    program = build("leaky_sessions", ["-g"])
    with subprocess.Popen(
        ["adb", "-s", SERIAL, "shell", "-T", f"sleep 1000 | {program} once"], stdout=subprocess.PIPE
    ) as running:
        try:
            assert running.stdout is not None and b"ready" in running.stdout.readline()
            report = asked("scan", "--on", device_of_adb, "leaky_sessions")
            assert report["leaks"]["allocations"] == 2400
            assert VTABLE.partition("+")[2] in str(report["groups"])
        finally:
            running.kill()
    nobody = run_cli(["scan", "--on", "adb:R58M", 1])
    assert nobody.status == FAILED and "device 'R58M' not found" in nobody.talk
    assert left() == []
