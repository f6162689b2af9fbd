"""Kinds of places with processes. Each knows only the command that starts a shell there.

To add one, write a class with `shell()` and add it to `KINDS`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from reachscan import errors

_DEVICES_SECONDS = 30


@dataclass(frozen=True)
class Where(ABC):
    """A place with processes.

    Attributes:
        rest: the text behind the colon.
        rights: what to do if permission to trace is missing there.
        no_shell: what to do if no shell answers.
    """

    rest: str
    rights: ClassVar[str]
    no_shell: ClassVar[str]

    @abstractmethod
    def shell(self) -> list[str]:
        """Return the command that runs `sh` there, with its stdin, stdout and stderr.

        Raises:
            ReachscanError: the place is ambiguous or missing.
        """


class Command(Where):
    """`exec:COMMAND`: any command that runs the words appended to it."""

    rights = "let the command become root there, as in --on 'exec:ssh HOST sudo'"
    no_shell = "try the command with `sh` behind it: it must read from its stdin"

    def shell(self) -> list[str]:
        """Return the command, followed by the shell."""
        return [*shlex.split(self.rest), "sh"]


class Ssh(Where):
    """`ssh:[USER@]HOST`, or anything else that ssh accepts; ssh reads its own configuration."""

    rights = "become root there, as with --on 'exec:ssh HOST sudo', if sudo does not ask"
    no_shell = "try `ssh HOST true`"

    def shell(self) -> list[str]:
        """Return the command; without a terminal, which would change some bytes."""
        return ["ssh", "-T", "--", self.rest, "exec", "sh"]


class Container(Where, ABC):
    """A container, run by Docker or a compatible program."""

    program: str
    rights = "start the container with --cap-add SYS_PTRACE, or scan the process from the host"
    no_shell = "if the container has no shell, scan its process from the host: reachscan PID"

    def shell(self) -> list[str]:
        """Return the command."""
        return [self.program, "exec", "-i", self.rest, "sh"]


class Docker(Container):
    """`docker:NAME`."""

    program = "docker"


class Podman(Container):
    """`podman:NAME`."""

    program = "podman"


class Nerdctl(Container):
    """`nerdctl:NAME`."""

    program = "nerdctl"


class Adb(Where):
    """`adb:SERIAL`, or `adb:` if there is only one device."""

    rights = (
        "become root with `adb root`, or, for a debuggable app, the app itself: "
        "--on 'exec:adb shell -T run-as PACKAGE'"
    )
    no_shell = "try `adb devices`"

    def shell(self) -> list[str]:
        """Return the command. `exec-out` would transfer bytes as well, but returns no status.

        Raises:
            UnreachableError: no device is attached, or there are several and none is named.
        """
        return ["adb", "-s", self.rest or _only_device(), "shell", "-T", "sh"]


class Kubectl(Where):
    """`kubectl:[NAMESPACE/]POD[/CONTAINER]`; naming a container requires the namespace."""

    rights = (
        "give the container the capability SYS_PTRACE, or attach one that has it: "
        "`kubectl debug --profile=general`"
    )
    no_shell = (
        "a pod without a shell can be given one: "
        "--on 'exec:kubectl debug -qi POD --image=busybox --target=CONTAINER --profile=general --'"
    )

    def shell(self) -> list[str]:
        """Return the command."""
        parts = self.rest.split("/")
        namespace = ["-n", parts[0]] if len(parts) > 1 else []
        pod = parts[1] if len(parts) > 1 else parts[0]
        container = ["-c", parts[2]] if len(parts) > 2 else []
        return ["kubectl", "exec", "-i", *namespace, pod, *container, "--", "sh"]


KINDS: Mapping[str, type[Where]] = {
    "ssh": Ssh,
    "docker": Docker,
    "podman": Podman,
    "nerdctl": Nerdctl,
    "adb": Adb,
    "kubectl": Kubectl,
    "exec": Command,
}
"""Kinds of places, by the text before the colon."""

_MAY_BE_EMPTY = ("adb",)
_MAX_PARTS = {"kubectl": 3}


def parse(text: str) -> Where:
    """Return the place that a text names, as in `ssh:build7`.

    Raises:
        WhereError: it names no place.
    """
    kind, colon, rest = text.partition(":")
    if kind not in KINDS or not colon:
        known = ", ".join(f"{name}:" for name in KINDS)
        raise errors.WhereError(f"{text!r} does not begin with one of {known}")
    if not rest.strip() and kind not in _MAY_BE_EMPTY:
        raise errors.WhereError(f"{text!r} does not say where")
    if rest.startswith("-"):
        raise errors.WhereError(f"{rest!r} in {text!r} would be taken for an option of {kind}")
    parts = rest.split("/")
    if kind in _MAX_PARTS and (len(parts) > _MAX_PARTS[kind] or not all(parts)):
        raise errors.WhereError(f"{text!r} is not [NAMESPACE/]POD[/CONTAINER]")
    try:
        shlex.split(rest)
    except ValueError as error:
        raise errors.WhereError(f"{text!r} cannot be split into words: {error}") from error
    return KINDS[kind](rest)


def _only_device() -> str:
    """Return the serial number of the device that is attached."""
    try:
        done = subprocess.run(
            ["adb", "devices"], capture_output=True, timeout=_DEVICES_SECONDS, check=True
        )
    except OSError as error:
        raise errors.UnreachableError(
            f"cannot start adb: {error.strerror}", "install adb, which is what reaches adb:"
        ) from error
    except subprocess.SubprocessError as error:
        raise errors.UnreachableError(f"cannot list devices: {error}", Adb.no_shell) from error
    listed = os.fsdecode(done.stdout).splitlines()
    lines = [line.split("\t") for line in listed if "\t" in line]
    if not lines:
        raise errors.UnreachableError("adb sees no device", "attach one, or see `adb devices`")
    if len(lines) > 1:
        raise errors.UnreachableError(
            f"{len(lines)} devices are attached",
            f"name one, as in --on adb:{lines[0][0]}",
            details=tuple(f"{serial}  {state}" for serial, state, *_ in lines),
        )
    return lines[0][0]
