"""Where processes can be: what the words mean, and the commands that start a shell there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reachscan import errors
from reachscan.transport import where


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ssh:me@build7", "ssh -T -- me@build7 exec sh"),
        ("docker:box", "docker exec -i box sh"),
        ("podman:box", "podman exec -i box sh"),
        ("nerdctl:box", "nerdctl exec -i box sh"),
        ("adb:R58M", "adb -s R58M shell -T sh"),
        ("kubectl:web-1", "kubectl exec -i web-1 -- sh"),
        ("kubectl:shop/web-1", "kubectl exec -i -n shop web-1 -- sh"),
        ("kubectl:shop/web-1/nginx", "kubectl exec -i -n shop web-1 -c nginx -- sh"),
        ("exec:ssh build7 sudo", "ssh build7 sudo sh"),
    ],
)
def test_the_command_that_starts_a_shell(text: str, command: str) -> None:
    assert " ".join(where.parse(text).shell()) == command


def test_words_of_a_command_may_be_quoted() -> None:
    assert where.parse("exec:run 'my box'").shell() == ["run", "my box", "sh"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("build7", "does not begin with one of ssh:"),
        ("telnet:build7", "does not begin with one of ssh:"),
        ("ssh:", "does not say where"),
        ("ssh:-oProxyCommand=x", "would be taken for an option of ssh"),
        ("exec:run 'my box", "cannot be split into words"),
        ("kubectl:a/b/c/d", "is not [NAMESPACE/]POD[/CONTAINER]"),
        ("kubectl:/web-1", "is not [NAMESPACE/]POD[/CONTAINER]"),
    ],
)
def test_what_names_no_place(text: str, why: str) -> None:
    with pytest.raises(errors.WhereError) as refused:
        where.parse(text)
    assert why in refused.value.sentence
    assert refused.value.exit_status == errors.ExitStatus.USAGE


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for the program; returns the file of what it lists."""
    listed = tmp_path / "devices"
    program = tmp_path / "adb"
    program.write_text(f"#!/bin/sh\necho List of devices attached\ncat {listed}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return listed


def test_the_only_device_needs_no_name(adb: Path) -> None:
    adb.write_text("R58M\tdevice\n\n")
    assert where.parse("adb:").shell()[:3] == ["adb", "-s", "R58M"]


def test_of_several_devices_one_is_to_be_named(adb: Path) -> None:
    adb.write_text("R58M\tdevice\nemulator-5554\toffline\n\n")
    with pytest.raises(errors.UnreachableError, match="2 devices are attached") as refused:
        where.parse("adb:").shell()
    assert refused.value.details == ("R58M  device", "emulator-5554  offline")
    assert "--on adb:R58M" in refused.value.next_step


def test_no_device(adb: Path) -> None:
    adb.write_text("\n")
    with pytest.raises(errors.UnreachableError, match="adb sees no device"):
        where.parse("adb:").shell()


def test_a_name_that_is_no_utf_8(adb: Path) -> None:
    adb.write_bytes(b"R58\xff\tdevice\n\n")
    (serial,) = where.parse("adb:").shell()[2:3]
    assert os.fsencode(serial) == b"R58\xff"
