"""Targets whose mapped files are a trap: the scan tells what leaks, and touches nothing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import user_file_system
from conftest import StartVictim
from hostile_elf import (
    SYMBOL,
    give_endless_sections,
    give_huge_symbol_tables,
    library,
    strip,
    text_offset,
)
from programs import children
from scans import PATIENCE, scan
from victims import REPOSITORY, Victim

NAME_OF_GOOD = f"good.so+{SYMBOL}"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return library(tmp_path / "good.so")


def started(victim: StartVictim, good: Path, *others: Path) -> Victim:
    return victim("foreign_modules", text_offset(good), good, *others)


def leaks_of(target: Victim) -> tuple[set[str], str]:
    """Return what the first words of the lost blocks point to, and all warnings."""
    report = scan(target.pid)
    assert report["leaks"]["allocations"] == target.ready["lost"]
    warnings = "\n".join(warning["message"] for warning in report["warnings"])
    return {group["signature"].split(" | ")[0] for group in report["groups"]}, warnings


def test_files_that_are_a_burden(victim: StartVictim, good: Path, tmp_path: Path) -> None:
    sections, symbols = library(tmp_path / "sections.so"), library(tmp_path / "symbols.so")
    target = started(victim, good, sections, symbols)
    give_endless_sections(sections)
    give_huge_symbol_tables(symbols)
    words, warnings = leaks_of(target)
    assert NAME_OF_GOOD in words
    assert len(words) == 3
    assert "sections.so: reading its file takes too long" in warnings
    assert "symbols.so: reading its file takes too much memory" in warnings


@contextmanager
def waiting_writer(pipe: Path) -> Iterator[threading.Thread]:
    """Open a pipe for writing, which waits until somebody opens it for reading."""
    thread = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_WRONLY)))
    thread.start()
    try:
        yield thread
    finally:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        thread.join()
        os.close(reader)


def test_a_pipe_where_a_module_was(victim: StartVictim, good: Path, tmp_path: Path) -> None:
    replaced = library(tmp_path / "replaced.so")
    target = started(victim, good, replaced)
    replaced.unlink()
    os.mkfifo(replaced)
    with waiting_writer(replaced) as writer:
        words, _ = leaks_of(target)
        assert writer.is_alive(), "the pipe was opened"
    assert NAME_OF_GOOD in words


def test_ctrl_c_while_a_file_system_is_mute(
    victim: StartVictim, good: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    (folder / ".debug").mkdir(parents=True)
    mute = library(folder / "mute.so")
    strip(mute, "mute.debug")
    target = started(victim, good, mute)
    with user_file_system.mute(folder / ".debug") as asked:
        command = subprocess.Popen(
            [sys.executable, "-m", "reachscan", str(target.pid)],
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert asked.wait(PATIENCE)
        readers = [os.pidfd_open(child) for child in children(command.pid)]
        os.killpg(command.pid, signal.SIGINT)
        try:
            out, talk = command.communicate(timeout=PATIENCE)
        finally:
            command.kill()
    assert command.returncode == 130, talk
    assert out == b""
    assert b"interrupted" in talk
    (reader,) = readers
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    assert poll.poll(1000 * PATIENCE), "a process was left behind"
    os.close(reader)
