"""Each block is explained by the place that its program put the pointer to it in."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import StartVictim
from scans import assert_let_go, relatives, run_cli, scan
from victims import Victim, build

import reachscan
from reachscan.capture.options import ScanOptions
from reachscan.reports import explain, explain_json

SCHEMA = json.loads((Path(reachscan.__file__).parent / "schema/block-v1.json").read_text())

IN_PROGRAM = r"^roots\+{} \((variable|constant)\)$"
IN_MODULE = r"^roots_module\+{} \(variable\)$"
PLACES = {
    "data": IN_PROGRAM.format("in_data"),
    "bss": IN_PROGRAM.format("in_bss"),
    "relro": IN_PROGRAM.format("in_relro"),
    "interior": IN_PROGRAM.format("to_the_middle"),
    "last_byte": IN_PROGRAM.format("to_the_last_byte"),
    "low_bits_tag": IN_PROGRAM.format("tagged_below"),
    "holder": IN_PROGRAM.format("live_block"),
    "in_live_block": IN_PROGRAM.format("live_block"),
    "in_mapped_block": IN_PROGRAM.format("live_mapped_block"),
    "in_usable_tail": IN_PROGRAM.format("live_tail"),
    "module_data": IN_MODULE.format("in_data"),
    "module_bss": IN_MODULE.format("in_bss"),
    "environment": r"\+_*environ \(variable\)$",
    "main_thread_tls": r"^thread-local variable roots\+in_main_tls of thread PID 'roots'$",
    "thread_tls": r"^thread-local variable roots\+in_tls of thread [0-9]+ 'roots'$",
    "low_pthread_key": "^descriptor of thread [0-9]+ 'roots', 0x[0-9a-f]+ into it$",
    "thread_stack": "^stack of thread [0-9]+ 'roots', 0x[0-9a-f]+ above its stack pointer$",
    "in_handler": "^stack of thread [0-9]+ 'roots', 0x[0-9a-f]+ above its stack pointer$",
    "red_zone": "^stack of thread [0-9]+ 'roots', 0x[0-9a-f]+ below its stack pointer$",
    "below_handler": "^first stack of thread [0-9]+ 'roots', ",
    "below_coroutine": "^first stack of thread [0-9]+ 'roots', ",
    "anonymous_page": "^anonymous memory 0x[0-9a-f]+-0x[0-9a-f]+, 0x[0-9a-f]*320 into it$",
    "shared_page": "^shared mapping of /dev/zero .*, 0x320 into it$",
    "private_file_page": "^/.*/scratch 0x.*, 0x320 into it$",
    "shared_file_page": "^shared mapping of /.*/scratch 0x.*, 0x320 into it$",
    "xmm5": "^register xmm5 of thread [0-9]+ 'roots'$",
    "ymm6_high": "^upper half of register ymm6 of thread [0-9]+ 'roots'$",
    "mmx3": r"^register st\(3\) or mm3 of thread [0-9]+ 'roots'$",
}
"""What keeps the block of a scene of roots.c alive, at the root of the chain, in words."""


@pytest.fixture
def roots(victim: StartVictim, tmp_path: Path) -> Victim:
    return victim("roots", tmp_path / "scratch", build("roots_module", ["-shared", "-fPIC"]))


def ask(*words: object) -> dict[str, Any]:
    done = run_cli([*words, "--json"])
    assert (done.status, done.talk) == (0, "")
    answer: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(answer, SCHEMA)
    assert answer["complete"] is True, answer["warnings"]
    return answer


def explained(pid: int, address: int, method: str) -> dict[str, Any]:
    result = reachscan.explain(pid, address, ScanOptions(method, contents=0))
    return explain_json.document(explain.Answer(result))


def complaint(scene: dict[str, Any], pid: int, method: str) -> str | None:
    """Say what is wrong with how the block of a scene is explained, if anything is."""
    answer = explained(pid, int(scene["address"], 16), method)
    chain, where = answer["chain"], scene["where"]
    lost = scene["expected"] != "live"
    if answer["state"] != ("leaked" if lost else "live"):
        return f"it is {answer['state']}"
    sure = {"leak": "definite", "possible": "possible", "live": None}[scene["expected"]]
    # Where a thread handles signals, only the kernel knows: that is not looked at.
    if answer["confidence"] != sure and scene["name"] != "handler_stack":
        return f"it is {answer['confidence']}"
    if lost or not chain:
        return None if lost and not chain else f"its chain is {chain}"
    root, last = chain[0], chain[-1]
    name = scene["name"].removesuffix("_in_call")
    wanted = PLACES.get(name, "").replace("PID", str(pid))
    if where == "register" and not wanted:
        # Where the last 16 vector registers are kept differs between processors.
        what = "a vector register" if name.startswith("zmm") else f"register {name}"
        wanted = f"^{what} of thread [0-9]+ 'roots'$"
    if not re.search(wanted, root["place"]) or (where == "kernel" and root["kind"] != "kernel"):
        return f"its root is {root['place']}"
    wrong_slot = where == "memory" and last["slot"] != scene["slot"]
    return f"the pointer is at {last['slot']}, not {scene['slot']}" if wrong_slot else None


@pytest.mark.parametrize("method", ["clone", "copy"])
def test_each_place_is_named(roots: Victim, method: str) -> None:
    before = relatives(roots.pid)
    scenes = roots.ready["scenes"]
    assert PLACES.keys() <= {scene["name"] for scene in scenes}
    if method == "copy":  # which differs in few places only
        scenes = [scene for scene in scenes if scene["where"] != "register"][::4]
    wrong = {scene["name"]: complaint(scene, roots.pid, method) for scene in scenes}
    assert {name: trouble for name, trouble in wrong.items() if trouble} == {}
    assert_let_go(roots.pid, before)


def test_place_on_a_stack_without_a_stop(roots: Victim) -> None:
    """Counted from where the stack pointer is, as by the methods that stop the thread."""
    by_name = {scene["name"]: scene for scene in roots.ready["scenes"]}
    for name in ("thread_stack", "in_handler"):
        address = int(by_name[name]["address"], 16)
        by_clone, by_live = (
            explained(roots.pid, address, method)["chain"][0] for method in ("clone", "live")
        )
        assert by_live["place"] == by_clone["place"]


def test_a_leak_and_what_it_holds(victim: StartVictim) -> None:
    target = victim("leaky_sessions", "once")
    blocks = scan(target.pid, "--all")["allocations"]
    direct = next(b["address"] for b in blocks if b["kind"] == "direct")
    answer = ask("explain", target.pid, direct)
    assert (answer["state"], answer["chain"]) == ("leaked", [])
    assert answer["block"]["type"] in ("shop::PlainSession", "shop::SecureSession")
    indirect = [b["address"] for b in blocks if b["kind"] == "indirect"]
    for address in indirect[:3]:
        answer = ask("explain", target.pid, hex(int(address, 16) + 9))
        head = answer["chain"][0]["block"]
        assert answer["state"] == "leaked"
        assert answer["block"]["address"] == address
        assert answer["block"]["shape"] in ("list node", "tree node")
        assert head["type"] in ("shop::PlainSession", "shop::SecureSession")
        holders = ask("refs", target.pid, address)["references"]
        assert {h["holder"] for h in holders} == {"leaked block"}
        owner = answer["chain"][-1]["block"]["address"]
        assert owner in {h["block"]["address"] for h in holders}


FORMS = {
    "relative": "relative-pointer",
    "number": "pointer-as-number",
    "tag": "tagged-pointer",
    "stale": "stale-word",
}


@pytest.mark.parametrize(
    "program",
    [
        *("other_forms", "recycled", "written_over", "free_keys", "spare_parts"),
        *("llvm_containers", "never_initialised", "qt_containers"),
    ],
)
def test_the_word_that_makes_a_leak_doubtful_is_shown(victim: StartVictim, program: str) -> None:
    target = victim(program)
    scenes = {scene["name"]: scene for scene in target.ready["scenes"]}  # some are many
    for scene in scenes.values():
        for question in ("explain", "refs"):
            answer = ask(question, target.pid, scene["address"])
            lost = scene["expected"] != "live"
            assert answer["state"] == ("leaked" if lost else "live"), scene
            assert answer["reason"] == FORMS.get(scene["expected"]), scene
            if program == "other_forms" or lost:
                assert bool(answer["sightings"]) == (scene["expected"] != "leak"), scene
            for seen in answer["sightings"]:
                assert not lost or seen["form"] == answer["reason"]
                with Path(f"/proc/{target.pid}/mem").open("rb", 0) as memory:
                    held = os.pread(memory.fileno(), 8, int(seen["slot"], 16))
                assert int.from_bytes(held, "little") == int(seen["value"], 16)


def test_references_to_a_live_block(roots: Victim) -> None:
    target = roots
    scenes = {scene["name"]: scene["address"] for scene in target.ready["scenes"]}
    references = ask("refs", target.pid, scenes["in_live_block"])["references"]
    holders = {r["block"]["address"] for r in references if r["holder"] == "live block"}
    assert scenes["holder"] in holders
    place = ask("refs", target.pid, scenes["data"])["references"][0]
    assert re.search(PLACES["data"], place["place"])


def test_an_answer_can_be_kept(roots: Victim, tmp_path: Path) -> None:
    target = roots
    scenes = {scene["name"]: scene["address"] for scene in target.ready["scenes"]}
    for name in ("in_live_block", "main_thread_tls", "thread_tls"):
        kept = tmp_path / f"{name}.rsc"
        asked = run_cli(["explain", target.pid, scenes[name], "--save", kept])
        assert asked.status == 0
        read = run_cli(["report", kept])
        assert (read.status, read.out) == (0, asked.out)


def test_addresses_that_are_no_blocks(victim: StartVictim) -> None:
    target = victim("leaky_sessions", "once")
    exe = next(
        line.split("-")[0]
        for line in Path(f"/proc/{target.pid}/maps").read_text().splitlines()
        if "leaky_sessions" in line
    )
    answer = ask("explain", target.pid, f"0x{exe}")
    assert (answer["state"], answer["block"]) == ("none", None)
    assert answer["place"] == "leaky_sessions+0x0 (constant)"
    done = run_cli(["explain", target.pid, "0x10"])
    assert (done.status, done.out) == (3, "")
    assert f"0x10 is in no mapping of leaky_sessions (pid {target.pid});" in done.talk


def test_the_live_heap_adds_up(victim: StartVictim, tmp_path: Path) -> None:
    target = victim("leaky_sessions", "once")
    kept = tmp_path / "heap.rsc"
    done = run_cli(["heap", target.pid, "--json", "--limit", 1000, "--save", kept])
    assert (done.status, done.talk) == (0, "")
    report = json.loads(done.out)
    groups = report["groups"]
    assert len(groups) == report["groups_total"]
    for amount in ("allocations", "bytes"):
        assert sum(group[amount] for group in groups) == report["heap"][amount]
        assert sum(a[amount] for g in groups for a in g["arenas"]) == report["heap"][amount]
    plain = next(group for group in groups if group["type"] == "shop::PlainSession")
    assert plain["allocations"] == 300 + 150  # forgotten ones and open ones
    again = json.loads(run_cli(["report", kept, "--json", "--limit", 1000]).out)
    for group in (*groups, *again["groups"]):
        group.pop("candidates")  # as many as a busy machine has the time to find
    assert again == report
