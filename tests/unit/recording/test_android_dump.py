"""Android's dumps of native heaps: what they say, and how damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_lines import Runner

from reachscan import errors
from reachscan.recording.architectures import ADDRESS_END
from reachscan.result import HeapScan
from reachscan.scanning import load

MAPS = """MAPS
7b600000-7b700000 r--p 00000000 fd:00 120 /system/lib64/libfoo.so
7b700000-7b900000 r-xp 00100000 fd:00 120 /system/lib64/libfoo.so
7c000000-7c001000 rw-p 00000000 00:00 0
7d000000-7d001000 rw-s 00000000 00:00 7 [anon:shared memory]
END
"""
RECORDS = """z 0  sz     4096  num    2  bt 7b700010 7b700200
z 1  sz     1000  num    1  bt 7b700010 7b700200
z 0  sz      120  num    3  bt 7b700050
z 0  sz       64  num    5  bt
"""
TOTAL = 2 * 4096 + 1000 + 3 * 120 + 5 * 64


def dump(version: str = "1.2", records: str = RECORDS, total: int = TOTAL, maps: str = MAPS) -> str:
    fingerprint = "Build fingerprint: 'a/b:10/c'\n\n" if version == "1.2" else ""
    count = sum(line.startswith("z ") for line in records.splitlines())
    head = f"Android Native Heap Dump v{version}\n\n{fingerprint}Total memory: {total}\n"
    return f"{head}Allocation records: {count}\nBacktrace size: 2\n\n{records}{maps}"


def loaded(tmp_path: Path, text: str) -> HeapScan:
    path = tmp_path / "heap.txt"
    path.write_text(text)
    scan = load(path)
    assert isinstance(scan, HeapScan)
    return scan


def document(run: Runner, tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "heap.txt"
    path.write_text(text)
    done = run("report", path, "--json")
    assert (done.status, done.talk) == (0, "")
    report: dict[str, Any] = json.loads(done.out)
    return report


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_totals_and_stacks(run: Runner, tmp_path: Path, version: str) -> None:
    report = document(run, tmp_path, dump(version))
    assert report["heap"] == {"allocations": 11, "bytes": TOTAL}
    assert report["warnings"] == []
    assert run("report", tmp_path / "heap.txt").out.startswith("heap dump: 11 live blocks")
    groups = [(g["allocations"], g["bytes"], g["stack"]) for g in report["groups"]]
    assert groups == [(3, 2 * 4096 + 1000, 0), (3, 360, 1), (5, 320, None)]
    first, second = report["stacks"]
    assert [frame["pc"] for frame in first] == ["0x7b700010", "0x7b700200"]
    assert first[0]["module"] == "/system/lib64/libfoo.so"
    assert first[0]["offset"] == 0x100010
    assert [frame["pc"] for frame in second] == ["0x7b700050"]
    assert report["groups"][0]["threads"] == [] and report["groups"][0]["age_us"] is None


def test_numbers_of_old_dumps_count_only_if_they_add_up(tmp_path: Path) -> None:
    records = "z 0  sz  100  num   16  bt 7b700010\nz 0  sz   40  num   16  bt 7b700050\n"
    scan = loaded(tmp_path, dump("1.0", records, 140))
    assert scan.recording.totals[:2] == (2, 140)
    assert loaded(tmp_path, dump("1.0", records, 140 * 16)).recording.totals[:2] == (32, 2240)


def test_names_of_complete_backtraces_are_taken(tmp_path: Path) -> None:
    info = '  bt_info {"/system/lib64/libfoo.so" 10 "make(int)" 4} {"" 0 "" 0}\n'
    text = dump(records=RECORDS.replace("\nz 1", f"\n{info}z 1"))
    frames = loaded(tmp_path, text).folding.joined.frames
    by_pc = {call.pc: frame for call, (frame, *_) in frames.items()}
    assert (by_pc[0x7B700010].function, by_pc[0x7B700010].function_offset) == ("make(int)", 4)
    assert by_pc[0x7B700200].function is None


def test_names_may_contain_quotes(tmp_path: Path) -> None:
    name = 'operator"" _ms(unsigned long long)::{lambda()#1}'
    info = f'  bt_info {{"/lib/libfoo.so" 10 "{name}" 4}} {{"/lib/libfoo.so" 200 "main" 9}}\n'
    text = dump(records=RECORDS.replace("\nz 1", f"\n{info}z 1"))
    frames = loaded(tmp_path, text).folding.joined.frames
    assert {frame.function for frame, *_ in frames.values()} >= {name, "main"}


def test_mappings_are_read_with_and_without_names(tmp_path: Path) -> None:
    mappings = loaded(tmp_path, dump()).recording.mappings
    assert [m.path for m in mappings][1:] == [
        *("/system/lib64/libfoo.so", "", "[anon:shared memory]"),
    ]
    assert [m.permissions for m in mappings] == [1, 5, 3, 11]


def test_an_unknown_version_is_a_warning(run: Runner, tmp_path: Path) -> None:
    report = document(run, tmp_path, dump("1.3"))
    assert [warning["code"] for warning in report["warnings"]] == ["unknown-dump-version"]
    assert report["heap"]["bytes"] == TOTAL


def test_totals_that_do_not_add_up_are_a_warning(run: Runner, tmp_path: Path) -> None:
    report = document(run, tmp_path, dump(total=TOTAL + 1))
    assert [warning["code"] for warning in report["warnings"]] == ["dump-inconsistent"]


def test_unreadable_mappings_are_no_damage(tmp_path: Path) -> None:
    text = dump(maps="MAPS\nCould not open /proc/self/maps\nEND\n")
    assert loaded(tmp_path, text).recording.mappings == ()


def test_every_truncation_is_refused(run: Runner, tmp_path: Path) -> None:
    text, path = dump(), tmp_path / "heap.txt"
    whole = text.rstrip("\n")
    for length in range(26, len(whole), 37):
        path.write_text(whole[:length])
        with pytest.raises(errors.StreamError):
            load(path)
    path.write_text(whole[:-1])
    done = run("report", path)
    assert (done.status, done.out) == (3, "") and "cut off" in done.talk


@pytest.mark.parametrize(
    "record",
    [
        "z 0  sz  num    2  bt 7b700010",
        "z 0  sz 12  num    2  bt 7b70001g",
        "z 0  sz 999999999999999999  num    9999  bt",
        "z 0  sz 1  num    99999999999999999999  bt",
        f"z 0  sz {ADDRESS_END // 2}  num 1  bt\nz 0  sz {ADDRESS_END // 2}  num 1  bt",
        "z 0  sz 0  num 9999999999999999999  bt",
        "z x",
    ],
)
def test_records_that_make_no_sense_are_refused(tmp_path: Path, record: str) -> None:
    with pytest.raises(errors.StreamError, match=r"line (9|10)(,| is no record)"):
        loaded(tmp_path, dump(records=f"{record}\n"))


def test_a_dump_is_written_in_every_format_of_the_heap(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "heap.txt"
    path.write_text(dump())
    for name in ("text", "logfmt", "html", "folded", "speedscope", "raphael"):
        done = run("report", path, "--format", name)
        assert (done.status, done.talk) == (0, "") and done.out
    again = run("report", path, "--format", "heapdump").out.splitlines()
    records = [line for line in again if line.startswith("z ")]
    assert records == [line.replace("z 1", "z 0") for line in RECORDS.splitlines()]
