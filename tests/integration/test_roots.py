"""Every place a pointer can be in keeps its block alive, and no other place does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import StartVictim
from evidence import Evidence, Hit, held_by_kernel, look_for
from scans import scan
from unharmed import METHODS
from victims import Victim, build, command_on, wait_until

from reachscan.recording.zip_equal import zip_equal

Scene = dict[str, Any]


@pytest.fixture
def roots(victim: StartVictim, tmp_path: Path) -> Victim:
    return start(victim, tmp_path)


def start(
    victim: StartVictim, folder: Path, command: list[str] | None = None, module: str | None = None
) -> Victim:
    module = module or str(build("roots_module", ["-shared", "-fPIC"]))
    target = victim("roots", folder / "scratch", module, command=command)
    wait_until(lambda: is_waiting(target.pid), "the last scene is set")
    return target


def is_waiting(pid: int) -> bool:
    """Whether the main thread sleeps; another one never does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def scenes_of(target: Victim) -> dict[int, Scene]:
    """Return the scenes by the addresses of their blocks, ascending."""
    return by_address(target.ready["scenes"])


def by_address(listed: list[Scene]) -> dict[int, Scene]:
    """Return the scenes that a program tells by the addresses of their blocks, ascending."""
    scenes = {int(scene["address"], 16): scene for scene in listed}
    return dict(sorted(scenes.items()))


def is_allocators(hit: Hit, scene: Scene, seen: Evidence) -> bool:
    """Whether it points to the free chunk behind a block, which begins with its last word."""
    mapping = seen.mapping_of(hit.address)
    where = mapping.path if mapping is not None else ""
    return hit.offset == scene["size"] - 8 and (where == "[heap]" or "/libc" in where)


def complaint(scene: Scene, hits: list[Hit], registers: int, seen: Evidence) -> str | None:
    """Say in what the scene differs from what it says of itself, if it does."""
    slot, where = int(scene["slot"], 16), scene["where"]
    in_slot = any(hit.address == slot for hit in hits)
    others = [hit for hit in hits if hit.address != slot and not seen.is_dead(hit.address)]
    strays = [
        f"{hit} in {seen.mapping_of(hit.address)}"
        for hit in others
        if not is_allocators(hit, scene, seen)
    ]
    if where == "library":  # somewhere, which no one can tell beforehand
        return None if strays or registers or in_slot else "nothing points there"
    if where == "register" and registers:
        return f"also in {strays}" if strays else None
    if where == "register" or (where == "memory" and not in_slot):
        return "the pointer is not where it should be"
    if where == "allocator" and not (others or in_slot):
        return "neither freed memory nor the allocator points there"
    return f"also in {registers} registers and {strays}" if strays or registers else None


def test_the_scenes_themselves(roots: Victim) -> None:
    """What each scene says about its pointer is true; found out without reachscan."""
    scenes = scenes_of(roots)
    seen = look_for(roots.pid, [(address, scene["size"]) for address, scene in scenes.items()])
    rows = zip_equal(scenes.values(), seen.memory, seen.registers)
    wrong = {
        scene["name"]: trouble
        for scene, hits, registers in rows
        if (trouble := complaint(scene, hits, registers, seen)) is not None
    }
    assert wrong == {}
    known = held_by_kernel(roots.pid)
    by_name = {scene["name"]: address for address, scene in scenes.items()}
    assert {by_name["epoll_data"], by_name["timer_value"]} <= known


def test_stacks_of_ended_threads_are_no_evidence(roots: Victim) -> None:
    ends = ("_stack", "_tls")
    how = ("joined", "detached", "unjoined")
    names = {f"{before}{end}" for before in how for end in ends}
    scenes = {a: scene for a, scene in scenes_of(roots).items() if scene["name"] in names}
    seen = look_for(roots.pid, [(address, scene["size"]) for address, scene in scenes.items()])
    assert {scene["name"] for scene in scenes.values()} == names
    for scene, hits in zip_equal(scenes.values(), seen.memory):
        slot = int(scene["slot"], 16)
        assert any(hit.address == slot for hit in hits), scene["name"]
        assert seen.is_dead(slot), scene["name"]


def unseen_without_a_stop(scenes: dict[int, Scene]) -> set[str]:
    """Nobody can read registers, but arguments of calls; nor signals. The report says so."""
    registers = {scene["name"] for scene in scenes.values() if scene["where"] == "register"}
    return registers - {"r8_in_call"} | {"signal_for_thread", "signal_for_process"}


def wrong_verdicts(target: Victim, report: dict[str, Any]) -> dict[str, str]:
    """Return the scenes that the report is wrong about; it says nothing of any other block."""
    return wrong_about(scenes_of(target), report)


def wrong_about(scenes: dict[int, Scene], report: dict[str, Any]) -> dict[str, str]:
    """Return the same, of scenes by address."""
    said = {
        int(block["address"], 16): "leak" if block["confidence"] == "definite" else "possible"
        for block in report["allocations"]
    }
    assert [hex(address) for address in said if address not in scenes] == []
    return {
        scene["name"]: f"{said.get(address, 'live')}, should be {scene['expected']}"
        for address, scene in scenes.items()
        if said.get(address, "live") != scene["expected"]
    }


@pytest.mark.parametrize("method", METHODS)
def test_each_place(roots: Victim, method: str) -> None:
    report = scan(roots.pid, "--all", "--method", method)
    wrong = wrong_verdicts(roots, report)
    expected = unseen_without_a_stop(scenes_of(roots)) if method == "live" else set()
    assert set(wrong) == expected, wrong
    warnings = [warning["code"] for warning in report["warnings"]]
    assert ("live-registers-unknown" in warnings) == (method == "live")
    reasons = {group["reason"] for group in report["groups"]} - {None}
    assert reasons == {"one-past-the-end", "tagged-pointer", "signal-stack", "mangled-pointer"}


LEFT_BY_ENDED = {
    f"{end}_{what}" for end in ("joined", "detached") for what in ("result", "argument")
}


@pytest.mark.parametrize("suite", ["bionic", "bullseye", "trixie", "sid"])
@pytest.mark.parametrize("method", ["clone", "copy"])
def test_each_place_on_another_library(
    victim: StartVictim, tmp_path: Path, suite: str, method: str
) -> None:
    target = start(victim, tmp_path, command_on(suite, "roots", ["-ldl"]))
    wrong = wrong_verdicts(target, scan(target.pid, "--all", "--method", method))
    # 2.43 does not note in the old places which thread was joined or detached.
    assert set(wrong) <= (LEFT_BY_ENDED if suite == "sid" else set()), wrong
