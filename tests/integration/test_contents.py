"""What blocks hold leaves a scan only if it was asked for, and costs nothing where it was not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartVictim
from scans import run_cli

from reachscan.recording import model, wire
from reachscan.recording.decode import decode

SECRET = b"customer that does not fit into a string itself"
CACHES, SESSIONS = 2, 50


@pytest.fixture
def pid(victim: StartVictim) -> int:
    return victim("containers", CACHES, SESSIONS).pid


def keep(pid: int, path: Path, contents: int, words: Sequence[object] = ("scan",)) -> Path:
    done = run_cli([*words[:1], pid, *words[1:], "--contents", contents, "--save", path])
    assert done.status in (0, 1), done.talk
    return path


def report(path: Path, *options: object) -> dict[str, Any]:
    done = run_cli(["report", path, "--json", *options])
    assert done.status in (0, 1), done.talk
    document: dict[str, Any] = json.loads(done.out)
    return document


def frames(path: Path) -> list[wire.Frame]:
    with path.open("rb") as file:
        return list(wire.frames(file))


def words_of(recording: model.Recording) -> model.Addresses:
    parts = [recording.leaks.words.ravel(), recording.leaks.first_word]
    if recording.kinds is not None:
        parts.append(recording.kinds.words.ravel())
    return np.unique(np.concatenate(parts))


def is_address(recording: model.Recording, word: int) -> bool:
    return any(m.start <= word < m.end for m in recording.mappings)


def assert_holds_no_contents(path: Path) -> None:
    """Besides addresses there are three words, which stand for all others."""
    recording = decode(frames(path))
    others = [int(w) for w in words_of(recording) if w and not is_address(recording, int(w))]
    assert len(others) <= 3
    assert not recording.contents and not len(recording.leaks.digest)
    assert SECRET not in path.read_bytes()


def without_contents(document: dict[str, Any]) -> list[dict[str, Any]]:
    for group in document["groups"]:
        del group["example"]["contents"]
    groups: list[dict[str, Any]] = document["groups"]
    return groups


@pytest.mark.parametrize("words", [["scan"], ["scan", "--confirm", 2], ["heap"]])
def test_groups_are_the_same_without_contents(
    pid: int, tmp_path: Path, words: Sequence[object]
) -> None:
    full = keep(pid, tmp_path / "full.rsc", 200, words)
    bare = keep(pid, tmp_path / "bare.rsc", 0, words)
    assert_holds_no_contents(bare)
    wanted, found = report(full, "--limit", 1000), report(bare, "--limit", 1000, "--contents", 32)
    assert any(group["example"]["contents"] for group in wanted["groups"])
    assert not any(group["example"]["contents"] for group in found["groups"])
    assert without_contents(wanted) == without_contents(found)


def test_contents_that_were_asked_for_are_kept(pid: int, tmp_path: Path) -> None:
    path = keep(pid, tmp_path / "full.rsc", 200)
    recording = decode(frames(path))
    assert len(set(words_of(recording).tolist())) > 10
    assert not recording.withheld and path.stat().st_mode & 0o777 == 0o600


def test_no_page_or_text_of_such_a_file_shows_any(pid: int, tmp_path: Path) -> None:
    path, page = keep(pid, tmp_path / "bare.rsc", 0), tmp_path / "page.html"
    dump, text = (
        re.compile(r"^ +0000  ([0-9a-f]{2} )+", re.MULTILINE),
        run_cli(["report", path]).out,
    )
    assert not dump.search(text)
    assert dump.search(run_cli(["report", keep(pid, tmp_path / "full.rsc", 200)]).out)
    assert "contents=" not in run_cli(["report", path, "--format", "logfmt"]).out
    assert run_cli(["report", path, "--format", "html", "-o", page]).status == 1
    assert not {b"texttext".hex(), "da" * 8} & set(page.read_text().split('"'))


@pytest.mark.parametrize("question", ["explain", "refs"])
def test_answers_about_a_block_keep_no_contents(pid: int, tmp_path: Path, question: str) -> None:
    scanned = json.loads(run_cli(["scan", pid, "--json", "--all"]).out)
    path = tmp_path / "answer.rsc"
    for block in scanned["allocations"][:: len(scanned["allocations"]) // 5]:
        done = run_cli([question, pid, block["address"], "--save", path])
        assert done.status == 0, done.talk
        assert_holds_no_contents(path)


def test_rules_about_text_say_where_they_cannot_be_applied(pid: int, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.write_text("program: containers; text: request that  # our log\nprogram: x; text: y\n")
    bare = keep(pid, tmp_path / "bare.rsc", 0)
    (warning,) = report(bare, "--suppressions", rules)["warnings"]
    assert warning["code"] == "suppression-needs-contents"
    assert f"{rules}:1 " in warning["message"]
    live = run_cli(["scan", pid, "--json", "--contents", 0, "--suppressions", rules])
    assert json.loads(live.out)["warnings"] == []
