"""A core file gets the verdicts that the living process got at that moment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import WRITERS, allow_core, crash, doomed, dumped, gcore
from elftools.elf.constants import P_FLAGS
from elftools.elf.elffile import ELFFile
from scans import FAILED, leaked, recording_of, run_cli, scan
from test_roots import is_waiting, scenes_of, wrong_verdicts
from victims import build, command_on, need, read_truth, wait_until

import reachscan
from reachscan.recording.model import Recording

FIXTURES: dict[str, tuple[Any, ...]] = {
    "leak_graph": ("leak_graph", "TRUTH", 5000, 20),
    "no-leaks": ("leak_graph", "TRUTH", 3000, 0),
    "threads": ("ground_truth", "TRUTH", 2, 4, 1000, "drain=20"),
    "mmapped": ("ground_truth", "TRUTH", 3, 4, 600, "drain=30", "fixed"),
    "sessions": ("leaky_sessions", "once"),
    "doubtful": ("doubtful",),
    "recycled": ("recycled",),
}
ALIKE = ("heap", "leaks", "groups", "allocations", "complete")
KEPT_BY_KERNEL = {"epoll_data", "timer_value", "signal_for_process", "signal_for_thread"}
KEPT_BY_KERNEL |= {"io_uring_request"}
"""Scenes of which a core file has no trace."""
UNREADABLE = {"execute_only_page"} if " ospke" in Path("/proc/cpuinfo").read_text() else set()
"""Scenes that the kernel cannot read where the processor has protection keys."""


def started(folder: Path, fixture: str, command: list[str] | None = None) -> Any:
    name, *arguments = FIXTURES[fixture]
    words = [folder / "truth" if word == "TRUTH" else word for word in arguments]
    return doomed(name, *words, folder=folder, command=command or ())


def scan_core(core: Path, *options: object) -> dict[str, Any]:
    """Return the machine report on a core file."""
    done = run_cli(["core", core, "--json", *options])
    assert done.status in (0, 1), done.talk
    report: dict[str, Any] = json.loads(done.out)
    assert report["snapshot"]["method"] == "core"
    assert report["snapshot"]["pause_us"] == 0
    return report


def assert_alike(core: dict[str, Any], live: dict[str, Any]) -> None:
    assert core["warnings"] == live["warnings"]
    for key in ALIKE:
        assert core[key] == live[key], key
    for key in ("pid", "name", "exe", "threads", "arch", "allocators"):
        assert core["target"][key] == live["target"][key]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("fixture", FIXTURES)
def test_same_report_as_of_the_living(tmp_path: Path, fixture: str, writer: str) -> None:
    with started(tmp_path, fixture) as target:
        live = scan(target.pid, "--all")
        core = WRITERS[writer](target, tmp_path)
        assert_alike(scan_core(core, "--all"), live)


@pytest.mark.parametrize("writer", WRITERS)
def test_tables_of_a_recorder_are_no_roots(tmp_path: Path, writer: str) -> None:
    """They hold the address of each recorded block; gdb says that the page before may be read."""
    program = str(build("recorded", ("-g", "-pthread")))
    with doomed("recorded", 5, folder=tmp_path, command=[program]) as target:
        live = scan(target.pid)
        core = WRITERS[writer](target, tmp_path)
        assert scan_core(core)["leaks"]["allocations"] == live["leaks"]["allocations"] > 0


@pytest.mark.parametrize("writer", WRITERS)
def test_stacks_of_a_recorder_are_in_the_core(tmp_path: Path, writer: str) -> None:
    program = str(build("recorded", ("-g", "-pthread")))
    with doomed("recorded", 5, folder=tmp_path, command=[program]) as target:
        live = scan(target.pid)
        dead = scan_core(WRITERS[writer](target, tmp_path))
    functions = [
        [[frame["function"] for frame in stack] for stack in report["stacks"]]
        for report in (live, dead)
    ]
    assert functions[0] == functions[1] != []
    assert dead["target"]["recorder"]["records"] == live["target"]["recorder"]["records"]
    ages = [group["age_us"]["newest"] for group in dead["groups"] if group["stack"] is not None]
    assert all(0 <= age < 3600e6 for age in ages)


@pytest.mark.parametrize("writer", WRITERS)
def test_memory_that_nothing_may_access(tmp_path: Path, writer: str) -> None:
    """It decides what a word there may mean; gdb says that it may be read."""
    with started(tmp_path, "threads") as target:
        reserved = closed_memory(reachscan.scan(target.pid).recording)
        core = WRITERS[writer](target, tmp_path)
    assert closed_memory(reachscan.core(core).recording) == reserved
    assert any(end - start > 1 << 20 for start, end in reserved), "of thread arenas"


def closed_memory(recording: Recording) -> set[tuple[int, int]]:
    """Return the mappings of a process without any permission."""
    return {(m.start, m.end) for m in recording.mappings if m.permissions == 0}


@pytest.mark.parametrize("suite", ["bullseye", "trixie", "sid"])
def test_other_glibc(tmp_path: Path, suite: str) -> None:
    with started(tmp_path, "threads", command_on(suite, "ground_truth")) as target:
        live = scan(target.pid, "--all")
        core = crash(target, tmp_path)
    assert_alike(scan_core(core, "--all"), live)


@pytest.mark.parametrize("suite", ["bullseye", "sid"])
def test_stacks_that_gdb_could_not_read(tmp_path: Path, suite: str) -> None:
    """Since 2.42, stacks have guard pages within their mapping, which gdb may not know."""
    with started(tmp_path, "threads", command_on(suite, "ground_truth")) as target:
        live = scan(target.pid, "--all")
        core = gcore(target, tmp_path)
        guarded = " gu " in Path(f"/proc/{target.pid}/smaps").read_text()
    done = run_cli(["core", core, "--json", "--all"])
    if done.status == FAILED:
        assert guarded and "is not in the core file; if gdb wrote it" in " ".join(done.talk.split())
    else:
        assert_alike(json.loads(done.out), live)


@pytest.mark.parametrize("what", [0x0, 0x2, 0x10])
def test_stacks_that_the_kernel_left_out(tmp_path: Path, what: int) -> None:
    with started(tmp_path, "threads") as target:
        core = crash(target, tmp_path, what)
    done = run_cli(["core", core])
    assert done.status == FAILED
    assert "unless /proc/PID/coredump_filter has bit 0 set" in " ".join(done.talk.split())


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("pie", ["-static", "-static-pie"])
def test_static_program(tmp_path: Path, pie: str, writer: str) -> None:
    """It does not tell what it may have given to the kernel, so that nothing is for certain."""
    # The C library keeps the path of this folder in the heap. The end of this one is no distance to
    # a block, as two digits may be.
    folder = tmp_path / "here"
    folder.mkdir()
    program = str(shutil.copy(build("leak_graph", [pie]), folder))
    with started(tmp_path, "leak_graph", [program]) as target:
        core = WRITERS[writer](target, tmp_path)
        report = scan_core(core, "--all")
        found, truth = leaked(report), read_truth(tmp_path / "truth")
        assert np.array_equal(found[:, :2], truth[:, :2])
        assert {group["reason"] for group in report["groups"]} == {"held-by-kernel"}


@pytest.mark.parametrize("writer", WRITERS)
def test_each_place(tmp_path: Path, writer: str) -> None:
    module = build("roots_module", ["-shared", "-fPIC"])
    with doomed("roots", tmp_path / "scratch", module, folder=tmp_path, waits=False) as target:
        wait_until(lambda: is_waiting(target.pid), "the last scene is set")
        report = scan_core(WRITERS[writer](target, tmp_path), "--all")
        scenes = {scene["name"]: scene["expected"] for scene in scenes_of(target).values()}
    said = {int(b["address"], 16): b["confidence"] for b in report["allocations"]}
    wrong = wrong_verdicts(target, report)
    # What only the kernel holds makes all the others doubtful, too.
    unseen = KEPT_BY_KERNEL | (UNREADABLE if writer == "kernel" else set())
    assert set(wrong) == unseen | {name for name, what in scenes.items() if what == "leak"}
    assert set(said.values()) == {"possible"}
    assert {"held-by-kernel", "incomplete-memory"} == {w["code"] for w in report["warnings"]}


@pytest.mark.parametrize("program", ["zstd", "lz4", "xz", "gzip"])
def test_compressed(tmp_path: Path, program: str) -> None:
    need(program, {"xz": "xz-utils"}.get(program, program))
    with started(tmp_path, "leak_graph") as target:
        core = gcore(target, tmp_path)
    packed = tmp_path / "packed"
    with core.open("rb") as plain, packed.open("wb") as file:
        subprocess.run([program, "-c"], stdin=plain, stdout=file, check=True)
    assert leaked(scan_core(packed, "--all")).tolist() == leaked(scan_core(core, "--all")).tolist()
    packed.write_bytes(packed.read_bytes()[:-100])
    assert f"the {program} data is damaged or truncated" in refusal(packed)


def refusal(path: Path) -> str:
    """Return the sentence that a file is refused with."""
    done = run_cli(["core", path])
    assert done.status == FAILED, done.out
    assert done.out == "" and len(done.talk.splitlines()) < 4
    return " ".join(done.talk.split())


def test_what_is_no_core_file(tmp_path: Path) -> None:
    files = {
        "empty": (b"", "it is empty"),
        "text": (b"core blimey\n" * 20, "it does not begin like an ELF file"),
        "program": (Path("/bin/true").read_bytes(), "but a program, a library"),
        "short": (b"\x7fELF", "not a core file"),
    }
    for name, (content, sentence) in files.items():
        (tmp_path / name).write_bytes(content)
        assert sentence in refusal(tmp_path / name)
    assert "must be a regular file" in refusal(Path("/dev/null"))


def test_core_of_another_processor(tmp_path: Path) -> None:
    with started(tmp_path, "leak_graph") as target:
        core = gcore(target, tmp_path)
    content = bytearray(core.read_bytes())
    content[18:20] = (183).to_bytes(2, "little")  # e_machine: aarch64
    core.write_bytes(content)
    assert "it is not a core file of a 64-bit x86 program" in refusal(core)


@pytest.mark.parametrize("kept", [0.0001, 0.3, 0.999])
def test_truncated(tmp_path: Path, kept: float) -> None:
    with started(tmp_path, "leak_graph") as target:
        core = crash(target, tmp_path)
    size = core.stat().st_size
    with core.open("r+b") as file:
        file.truncate(max(int(size * kept), 64))
    assert "the core file is truncated" in refusal(core)


def test_files_that_are_not_here(tmp_path: Path) -> None:
    """Leaks are found without them, names and types are not; nothing else takes their place."""
    with started(tmp_path, "leak_graph") as target:
        core = crash(target, tmp_path)
    (tmp_path / "root").mkdir()
    report = scan_core(core, "--all", "--root", tmp_path / "root")
    codes = [warning["code"] for warning in report["warnings"]]
    assert "missing-modules" in codes
    found, truth = leaked(report), read_truth(tmp_path / "truth")
    assert np.array_equal(found[:, :2], truth[:, :2])


def test_files_below_another_root(tmp_path: Path) -> None:
    with started(tmp_path, "sessions") as target:
        live = scan(target.pid, "--all")
        files = {m.path for m in recording_of(target.pid).mappings if m.path.startswith("/")}
        core = crash(target, tmp_path)
    root = tmp_path / "root"
    for file in files:
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file[1:])
    assert_alike(scan_core(core, "--all", "--root", root), live)


def test_memory_that_is_not_dumped(tmp_path: Path) -> None:
    """What only it may point to is possibly leaked, and so is everything."""
    with doomed("not_dumped", "memory", folder=tmp_path) as target:
        report = scan_core(crash(target, tmp_path), "--all")
    assert verdicts(report) == {
        target.ready["held"]: "possible",
        target.ready["leaked"]: "possible",
    }
    assert {group["reason"] for group in report["groups"]} == {"unreadable-memory"}
    assert {warning["code"] for warning in report["warnings"]} == {"incomplete-memory"}
    assert report["complete"] is False


def test_memory_that_the_kernel_cannot_read(tmp_path: Path) -> None:
    """With protection keys, it writes zeros; here they are written on any processor."""
    with doomed("not_dumped", "execute-only", folder=tmp_path) as target:
        live = scan(target.pid, "--all")
        core = crash(target, tmp_path)
    assert verdicts(live) == {target.ready["leaked"]: "definite"}
    with core.open("r+b") as file:
        segments = [s for s in ELFFile(file).iter_segments() if s["p_flags"] == P_FLAGS.PF_X]
        segment = segments[0]  # the only one, except for what the kernel maps at the top
        os.pwrite(file.fileno(), bytes(segment["p_filesz"]), segment["p_offset"])
    report = scan_core(core, "--all")
    assert verdicts(report) == {
        target.ready["held"]: "possible",
        target.ready["leaked"]: "possible",
    }
    (warning,) = report["warnings"]
    assert warning["code"] == "incomplete-memory"
    assert f"{segment['p_filesz']} bytes" in warning["message"]


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {block["address"]: block["confidence"] for block in report["allocations"]}


@pytest.mark.parametrize("writer", WRITERS)
def test_file_that_is_shared(tmp_path: Path, writer: str) -> None:
    """No core file has its contents; the file does, unless somebody wrote to it since."""
    shared = tmp_path / "shared"
    with doomed("not_dumped", "file", shared, folder=tmp_path) as target:
        core = WRITERS[writer](target, tmp_path)
    assert verdicts(scan_core(core, "--all")) == {target.ready["leaked"]: "definite"}
    shared.write_bytes(bytes(4096))
    written = core.stat().st_mtime_ns + 10**9
    os.utime(shared, ns=(written, written))
    report = scan_core(core, "--all")
    assert verdicts(report) == {
        target.ready["held"]: "possible",
        target.ready["leaked"]: "possible",
    }
    assert str(shared) in report["warnings"][0]["message"]


def test_heap_that_is_not_dumped(tmp_path: Path) -> None:
    with started(tmp_path, "leak_graph") as target:
        core = crash(target, tmp_path, what=0x10)
    assert refusal(core)


def test_heap_that_is_damaged(tmp_path: Path) -> None:
    with doomed("damages_heap", folder=tmp_path) as target:
        allow_core(target)
        assert target.process.stdin is not None
        target.process.stdin.close()
        target.process.stdin = None
        core = dumped(target, tmp_path)
    assert "the program crashed with signal 6, perhaps because it had damaged" in refusal(core)


def test_busy_threads(tmp_path: Path) -> None:
    """There is no better moment: it is refused, or what is in flight is doubted."""
    truth = tmp_path / "truth"
    with doomed("busy_threads", truth, 4, 300, folder=tmp_path, waits=False) as target:
        for number in range(3):
            core = gcore(target, tmp_path)
            done = run_cli(["core", core, "--json", "--all"])
            if done.status == FAILED:
                assert "while a thread was inside the allocator" in " ".join(done.talk.split())
                continue
            report = json.loads(done.out)
            expected = read_truth(truth)[:, 0]
            found = {int(b["address"], 16): b["confidence"] for b in report["allocations"]}
            assert set(expected.tolist()) <= found.keys(), number
            wrong = [a for a, sure in found.items() if sure == "definite" and a not in expected]
            assert wrong == [], number


def test_saved_scan_and_other_questions(tmp_path: Path) -> None:
    with started(tmp_path, "leak_graph") as target:
        core = gcore(target, tmp_path)
    saved = tmp_path / "scan.rsc"
    direct = run_cli(["core", core, "--json", "--save", saved])
    assert run_cli(["report", saved, "--json"]).out == direct.out
    address = json.loads(direct.out)["groups"][0]["example"]["address"]
    heap = json.loads(run_cli(["core", core, "--heap", "--json"]).out)
    assert heap["heap"] == json.loads(direct.out)["heap"]
    answer = run_cli(["core", core, "--explain", address])
    assert answer.status == 0 and "it is leaked" in " ".join(answer.out.split())
    assert run_cli(["core", core, "--refs", address, "--heap"]).status == 2
