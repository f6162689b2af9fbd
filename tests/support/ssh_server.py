"""A real sshd on a private port, with keys and users of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from victims import need, wait_until
from worlds import NOBODY, must_work, public_folder

STRANGER = "stranger"
"""A user of that server alone, who may trace nobody else's processes."""

CONFIGURATION = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
"""

# The files of users are others for the server only. It needs a folder to separate its rights in.
START = """
mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/shadow" /etc/shadow &&
mkdir -p /run/sshd && exec "$2" -D -e -f "$1/sshd_config"
"""


@dataclass(frozen=True)
class Server:
    """A server that runs.

    Attributes:
        program: a folder that holds `ssh`, which knows the server as the hosts `may` and `may-not`.
        configuration: of that, for `ssh -F`.
    """

    program: Path
    configuration: Path

    @property
    def path(self) -> dict[str, str]:
        """Return the environment in which `ssh` is that one."""
        return {"PATH": f"{self.program}:{os.environ['PATH']}"}


def _write_keys(folder: Path) -> None:
    keygen = need("ssh-keygen", "openssh-client")
    for name in ("host_key", "key"):
        command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    (folder / "key.pub").chmod(0o644)


def _write_users(folder: Path) -> None:
    for name, line in (
        ("passwd", f"{STRANGER}:x:{NOBODY}:{NOBODY}::/:/bin/sh\n"),
        ("shadow", f"{STRANGER}:*:::::::\n"),
    ):
        (folder / name).write_text(Path("/etc", name).read_text() + line)
        shutil.copymode(Path("/etc", name), folder / name)


def _write_client(folder: Path, port: int) -> Server:
    lines = [f"Host *\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/key"]
    lines += ["  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null"]
    lines += ["  LogLevel ERROR\nHost may\n  User root", f"Host may-not\n  User {STRANGER}\n"]
    configuration = folder / "ssh_config"
    configuration.write_text("\n".join(lines))
    program = folder / "bin"
    program.mkdir()
    ssh = program / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {need("ssh", "openssh-client")} -F {configuration} "$@"\n')
    ssh.chmod(0o755)
    return Server(program, configuration)


@contextmanager
def running() -> Iterator[Server]:
    """Start a server; skips the test where that cannot be done."""
    sshd, unshare = need("sshd", "openssh-server"), need("unshare", "util-linux")
    must_work([unshare, "--mount", "true"], "a mount namespace")
    with public_folder() as folder, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        _write_keys(folder)
        _write_users(folder)
        server = _write_client(folder, port)
        (folder / "sshd_config").write_text(CONFIGURATION.format(port=port, folder=folder))
        taken.close()
        command = [unshare, "--mount", "sh", "-c", START, "sh", str(folder), sshd]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
            try:
                said = folder / "log"
                wait_until(lambda: "listening" in said.read_text(), "the server listens")
                yield server
            finally:
                process.send_signal(signal.SIGTERM)
