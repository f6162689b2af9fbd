"""Runs the command line in this process, with a helper that only pretends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from streams import CODE, Leak, Stream

from reachscan.capture import helper
from reachscan.cli import main

LEAKY = Stream(leaks=[Leak(24, [CODE + 8], [100])])


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    talk: str


Runner = Callable[..., Run]
Install = Callable[..., None]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    def run(*words: object) -> Run:
        with pytest.raises(SystemExit) as exit_:
            main.main([str(word) for word in words])
        captured = capsys.readouterr()
        assert isinstance(exit_.value.code, int)
        return Run(int(exit_.value.code), captured.out, captured.err)

    return run


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "saved.rsc"
    path.write_bytes(LEAKY.encoded())
    return path


@pytest.fixture
def target() -> Iterator[int]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def fake_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make the helper a shell script that sends a stream and then does something."""

    def install(stream: bytes, then: str = "") -> None:
        sent = tmp_path / "sent"
        sent.write_bytes(stream)
        script = tmp_path / "helper"
        script.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\ncat {sent}\n{then}\n')
        script.chmod(0o755)
        monkeypatch.setenv(helper.OVERRIDE, str(script))

    return install


def assert_refused(done: Run, *words: str, status: int = 3) -> None:
    assert done.status == status, done.talk
    assert done.out == ""
    assert done.talk.count("\n") == 1, done.talk
    assert all(word in done.talk for word in words), done.talk


CALL_MAIN = "from reachscan.cli.main import main; main()"
