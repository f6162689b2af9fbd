"""A real daemon of adb as the one device of a real client and server, in a network of their own.

The daemon is Debian's package adbd, which is there since Debian 13. On an older one it is fetched,
with all that it needs, from the mirror that this machine's own apt sources name, and kept in
.cache/adbd.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from glibc_suites import UnavailableError, keep_links_inside, private_apt, run
from programs import answers
from victims import need, wait_until
from worlds import must_work

SUITE = "trixie"
DAEMON = "usr/lib/android-sdk/platform-tools/adbd"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "ld-linux-x86-64.so.2"
PORT = 5555
ADDRESSES = "192.0.2.1", "192.0.2.2"

# The server looks for emulators at 127.0.0.1 when it starts, and would take the daemon for one. It
# may do so before it reads the variable that forbids it, so that address is removed.
START = " && ".join(
    ["ip link set lo up", "ip address flush dev lo"]
    + [f"ip address add {address}/32 dev lo" for address in ADDRESSES]
    + ['exec "$0" "$@"']
)


@dataclass(frozen=True)
class Device:
    """A device that is not yet connected.

    Attributes:
        programs: a folder with an `adb` that knows no other device.
    """

    programs: Path

    def connect(self, host: str = ADDRESSES[0]) -> str:
        """Connect the client's server with the device; return its serial number."""
        serial = f"{host}:{PORT}"
        said = self.adb("connect", serial)
        assert said.startswith("connected"), said
        self.adb("-s", serial, "wait-for-device")
        return serial

    def adb(self, *words: str) -> str:
        """Return what the client says."""
        command = [str(self.programs / "adb"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@contextmanager
def running(folder: Path, path: Path) -> Iterator[Device]:
    """Start daemon and server; skip the test if they cannot be had.

    Args:
        folder: for files.
        path: a folder with programs that the device's shell finds first.
    """
    client, unshare = need("adb", "adb"), need("unshare", "util-linux")
    enter, _ = need("nsenter", "util-linux"), need("ip", "iproute2")
    must_work([unshare, "--net", "true"], "a network namespace")
    log = folder / "log"
    start = [unshare, "--net", "sh", "-c", START, *_daemon()]
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    with (
        log.open("wb") as output,
        _ended(subprocess.Popen(start, stdout=output, stderr=output, env=environment)) as daemon,
    ):
        wait_until(lambda: "adbd started" in log.read_text(), "the daemon listens")
        adb, socket = folder / "adb", folder / "server"
        own = f"HOME={folder} ADB_SERVER_SOCKET=localfilesystem:{socket}"
        adb.write_text(f'#!/bin/sh\n{own} exec {enter} --target {daemon.pid} --net {client} "$@"\n')
        adb.chmod(0o755)
        with _ended(subprocess.Popen([adb, "nodaemon", "server"], stderr=subprocess.DEVNULL)):
            wait_until(lambda: answers(socket, b"000chost:version", b"OKAY"), "the server answers")
            yield Device(folder)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    with process:
        try:
            yield process
        finally:
            process.kill()


def _daemon() -> list[str]:
    """Return the command that runs the daemon."""
    installed = Path("/", DAEMON)
    if installed.exists():
        return [str(installed)]
    try:
        root = _fetched()
    except (UnavailableError, OSError) as error:
        pytest.skip(f"adbd is not installed, and cannot be fetched: {error}")
    folders = f"{root / LIBRARIES}:{root / LIBRARIES / 'android'}"
    return [str(root / LIBRARIES / LOADER), "--library-path", folders, str(root / DAEMON)]


def _fetched() -> Path:
    default = Path(__file__).resolve().parents[2] / ".cache" / "adbd"
    folder = Path(os.environ.get("REACHSCAN_ADBD_CACHE", default))
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / "root"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _unpack(folder, folder / "new")
            (folder / "new").rename(root)
    return root


def _unpack(folder: Path, root: Path) -> None:
    for stale in ("apt", "new"):
        shutil.rmtree(folder / stale, ignore_errors=True)
    options = private_apt(SUITE, folder / "apt")
    run(["apt-get", *options, "update"], folder)
    run(["apt-get", *options, "--yes", "--download-only", "install", "adbd"], folder)
    for package in sorted((folder / "apt" / "cache" / "archives").glob("*.deb")):
        run(["dpkg-deb", "-x", str(package), str(root)], folder)
    keep_links_inside(root)
    shutil.rmtree(folder / "apt")
