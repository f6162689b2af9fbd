"""`--python`: reference counts that extension modules get wrong, by the types of the objects."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartVictim
from cores import NARROW, gcore
from glibc_suites import PYTHONS
from provisions import provide_all, python_with
from scans import FAILED, recording_of, run_cli, scan
from victims import REPOSITORY, build, glibc_of, running

from reachscan.recording import model
from reachscan.recording.zip_equal import zip_equal

SCRIPTS = REPOSITORY / "fixtures" / "python"
BUSY_SCANS = int(os.environ.get("REACHSCAN_BUSY_SCANS", "4"))
MORE = os.environ.get("REACHSCAN_PYTHONS", "").split()
"""Other interpreters to test with, of 3.9 or later."""

PYTHON = ("/usr/bin/python3", "-S")
"""What is installed with a .pth file runs at the start, and leaves words in memory."""
FORGOTTEN = dict.fromkeys(("list", "dict", "Node", "str", "Slim", "Watched", "tuple"), 1000)
UNMAPPED_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
"""gcore does not record that the file of a locale is mapped to be read only, so it is searched, and
its numbers look like addresses: the interpreter's heap lies below 4 GiB."""
FOUND = {**dict.fromkeys(FORGOTTEN, 900), "tuple": 600}
"""At least. To the others words lead that were left over: on stacks, in lists of what is free. The
tuples are large and lie where the compiler of the interpreter had its memory before."""


def extension(name: str = "forgets_references") -> Path:
    provide_all("libpython3-dev")
    said = subprocess.run(
        ["/usr/bin/python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    flags = [f"-I{said.stdout.strip()}", "-DPy_LIMITED_API=0x03090000", "-shared", "-fPIC"]
    return build(name, [*flags, "-Wno-cast-function-type"])


def script(name: str) -> str:
    return str(SCRIPTS / f"{name}.py")


def assert_only_the_forgotten_leak(report: dict[str, Any]) -> None:
    definite = [group for group in report["groups"] if group["reason"] is None]
    found = {group["type"]: group for group in definite if group["reference_count_leak"]}
    assert set(found) == set(FORGOTTEN)
    for name, group in found.items():
        assert FOUND[name] <= group["allocations"] <= FORGOTTEN[name], name
    below = {name: group["indirect_allocations"] for name, group in found.items()}
    # Items, a text, a tuple, two numbers; a table, a text, a number; a hundred numbers.
    assert below["list"] >= 4 * found["list"]["allocations"]
    assert below["dict"] >= 2 * found["dict"]["allocations"]
    assert below["tuple"] >= 99 * found["tuple"]["allocations"]
    (lost,) = [group for group in definite if not group["reference_count_leak"]]
    assert lost["size"] == 96 and 900 <= lost["allocations"] <= 1000
    assert report["leaks"]["possible_allocations"] <= 0.05 * report["leaks"]["allocations"]
    assert report["collectible"]["allocations"] >= 1800


def test_forgotten_references_are_found_by_type() -> None:
    with running([*PYTHON, script("forgets_references"), str(extension())]) as target:
        assert_only_the_forgotten_leak(scan(target.pid, "--python"))
        text = run_cli(["scan", target.pid, "--python", "--contents", 0]).out
        assert "reference-count leak of Watched" in text
        without = scan(target.pid)
        assert without["collectible"] is None and "pymalloc" not in without["target"]["allocators"]
        assert without["leaks"]["allocations"] == 0


def test_live_objects_are_counted_by_type() -> None:
    with running([*PYTHON, script("forgets_references"), str(extension())]) as target:
        live = json.loads(run_cli(["heap", target.pid, "--python", "--json", "--limit", 5000]).out)
    counted = {group["type"]: group["allocations"] for group in live["groups"]}
    # Those that are forgotten, left to the collector, and in use.
    objects = {"Node": 4000, "Slim": 2000, "Watched": 1000}
    assert {name: counted[name] for name in objects} == objects
    assert counted["list"] >= 1000 and counted["dict"] >= 2000 and counted["str"] >= 4000
    assert sum(group["allocations"] for group in live["groups"]) == live["heap"]["allocations"]
    # Short texts, too, are objects.
    assert not any(
        "PyUnicode_Type" in group["signature"].split(" | ")[1:2] for group in live["groups"]
    )


def test_an_object_in_a_pool_can_be_asked_about(tmp_path: Path) -> None:
    with running([*PYTHON, script("forgets_references"), str(extension())]) as target:
        report = scan(target.pid, "--python")
        (group,) = [g for g in report["groups"] if g["type"] == "Watched" and not g["reason"]]
        address = group["example"]["address"]
        assert "is no heap memory" in run_cli(["explain", target.pid, address]).out
        for command in ("explain", "refs"):
            answer = run_cli([command, target.pid, address, "--python"])
            assert answer.status == 0 and "it is leaked" in answer.out
        core = gcore(target, tmp_path)
        dead = run_cli(["core", core, "--python", "--explain", address])
        assert "it is possibly leaked" in dead.out  # the kernel may hold anything
        watch = ["watch", target.pid, "--python", "--count", 1]
        assert f"{report['leaks']['allocations']} leaked blocks" in run_cli(watch).out


@pytest.mark.parametrize("suite", PYTHONS)
def test_forgotten_references_in_other_releases(suite: str) -> None:
    command = [*glibc_of(suite).python, script("forgets_references"), str(extension())]
    with running(command) as target:
        assert_only_the_forgotten_leak(scan(target.pid, "--python"))


@pytest.mark.parametrize("python", MORE)
def test_forgotten_references_with_interpreters_that_are_named(python: str) -> None:
    with running([python, script("forgets_references"), str(extension())]) as target:
        assert_only_the_forgotten_leak(scan(target.pid, "--python"))


@pytest.mark.parametrize("method", ["copy"])
def test_copies_of_memory_tell_the_same(method: str) -> None:
    with running([*PYTHON, script("forgets_references"), str(extension())]) as target:
        assert_only_the_forgotten_leak(scan(target.pid, "--python", "--method", method))


def test_a_core_file_tells_the_same(tmp_path: Path) -> None:
    command = [*PYTHON, script("forgets_references"), str(extension())]
    with running(command, NARROW | UNMAPPED_LOCALE) as target:
        alive = scan(target.pid, "--python", "--all")
        core = gcore(target, tmp_path)
    dead = json.loads(run_cli(["core", core, "--python", "--json", "--all"]).out)
    assert dead["leaks"]["allocations"] == alive["leaks"]["allocations"]


def pools(recording: model.Recording) -> tuple[model.Addresses, model.Addresses]:
    """Return the blocks that are in pools: addresses and sizes."""
    regions, leaks = recording.regions, recording.leaks
    inside = np.zeros(len(leaks.address), bool)
    for start, end, kind in zip_equal(regions.start, regions.end, regions.kind):
        if kind == model.POOLS:
            inside |= (leaks.address >= start) & (leaks.address < end)
    return leaks.address[inside], leaks.size[inside]


def test_enumeration_is_what_the_allocator_says(tmp_path: Path) -> None:
    statistics = tmp_path / "statistics"
    command = [*PYTHON, script("forgets_references"), str(extension()), str(statistics)]
    with running(command) as target:
        address, size = pools(recording_of(target.pid, "--list-heap", "--python"))
        assert np.isin(np.array(target.ready["held"], np.uint64), address).all()
    # class  size  num pools  blocks in use  avail blocks
    rows = re.findall(r"^ +\d+ +(\d+) +\d+ +(\d+) +\d+$", statistics.read_text(), re.MULTILINE)
    stated = {int(size): int(used) for size, used in rows if int(used)}
    sizes, counts = np.unique(size, return_counts=True)
    assert dict(zip_equal(sizes.tolist(), counts.tolist())) == stated
    assert len(stated) == 32


def assert_nothing_leaks(command: Sequence[str], scans: int = 1) -> None:
    with running(command) as target:
        for _ in range(scans):
            report = scan(target.pid, "--python")
            assert report["leaks"]["allocations"] == 0, report["groups"]
            assert "pymalloc" in report["target"]["allocators"]


def test_nothing_leaks_in_an_idle_server() -> None:
    assert_nothing_leaks(["/usr/bin/python3", script("idle")])


def test_nothing_leaks_with_numpy() -> None:
    assert_nothing_leaks([sys.executable, script("idle"), "numpy", "numpy.linalg", "numpy.random"])


def test_nothing_leaks_with_pandas() -> None:
    assert_nothing_leaks([python_with("pandas"), script("idle"), "pandas", "pandas.io.api"])


def test_nothing_leaks_while_objects_come_and_go() -> None:
    assert_nothing_leaks(["/usr/bin/python3", script("busy")], BUSY_SCANS)


def test_a_program_without_arenas_is_refused() -> None:
    with running([str(build("leak_graph")), "/dev/null", "1", "10"]) as target:
        done = run_cli(["scan", target.pid, "--python"])
    assert done.status == 3 and "no arena of CPython's allocator" in done.talk


def test_looks_at_a_running_process_are_refused() -> None:
    with running(["/usr/bin/python3", script("busy")]) as target:
        done = run_cli(["scan", target.pid, "--python", "--method", "live"])
    assert done.status == 3 and "memory of one moment" in done.talk


@pytest.mark.parametrize("flags", [[], ["-DVERSION=0x030f00f0"]], ids=["3.8", "3.15"])
def test_unknown_versions_are_refused(victim: StartVictim, flags: list[str]) -> None:
    program = build("unknown_python", ["-rdynamic", *flags])
    done = run_cli([victim("unknown_python", command=[str(program)]).pid, "--python"])
    assert done.status == FAILED
    assert "only those of CPython 3.9 to 3.14 are known" in done.talk
