"""The helper is started and listened to, whatever its caller is like."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from streams import Stream

from reachscan import errors
from reachscan.capture import helper
from reachscan.capture.options import ScanOptions
from reachscan.recording import wire

FD_SETSIZE = 1024


def test_helpers_of_other_processors_are_where_make_puts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "EXECUTABLE", str(tmp_path / "reachscan-helper"))
    with pytest.raises(errors.NoHelperError, match="there is no helper for pdp11"):
        helper.executable("pdp11")

    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    assert "SHIPPED := $(CURDIR)/reachscan/_native/helpers\n" in makefile
    assert "REACHSCAN_DEV_OUTPUT=$(SHIPPED)/$* " in makefile
    own = tmp_path / "helpers/pdp11/reachscan-helper"
    own.parent.mkdir(parents=True)
    own.touch()
    assert helper.executable("pdp11") == str(own)


@pytest.mark.parametrize(("machine", "name"), [("armv7l", "armv7"), ("armv8l", "aarch64")])
def test_machines_whose_helper_has_another_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str, name: str
) -> None:
    monkeypatch.setattr(helper, "EXECUTABLE", str(tmp_path / "reachscan-helper"))
    own = tmp_path / "helpers" / name / "reachscan-helper"
    own.parent.mkdir(parents=True)
    own.touch()
    assert helper.executable(machine) == str(own)


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Take so many descriptors that new ones have numbers beyond what select() knows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * FD_SETSIZE:
        pytest.skip(f"only {hard} descriptors are allowed here (RLIMIT_NOFILE)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * FD_SETSIZE), hard))
    with ExitStack() as stack:
        while (taken := os.dup(0)) <= FD_SETSIZE:
            stack.callback(os.close, taken)
        stack.callback(os.close, taken)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_caller_with_many_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sent").write_bytes(Stream().encoded())
    script = tmp_path / "helper"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/sent\n")
    script.chmod(0o755)
    monkeypatch.setenv(helper.OVERRIDE, str(script))
    with helper.run(os.getpid(), ScanOptions()) as frames:
        assert [frame.type for frame in frames][-1] == wire.FINAL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_at_the_start_waits_for_the_helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    script = tmp_path / "helper"
    script.write_text(f"#!/bin/sh\ntrap '' PIPE\nwhile echo; do :; done\ntouch {tmp_path}/let-go\n")
    script.chmod(0o755)
    monkeypatch.setenv(helper.OVERRIDE, str(script))

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            os.kill(os.getpid(), number)

    before = signal.signal(number, signal.default_int_handler)
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), helper.run(os.getpid(), ScanOptions()):
        raise AssertionError("it was not interrupted")
    assert (tmp_path / "let-go").exists()
    assert signal.signal(number, before) is signal.default_int_handler
