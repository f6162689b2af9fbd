"""Formats of other tools: each is read back by a reader of its own, and adds up to the report."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from scans import run_cli, scan
from victims import REPOSITORY, Victim, build, running

from reachscan.recording.zip_equal import zip_equal

COUNT = 20
SPEEDSCOPE_SCHEMA = REPOSITORY / "tests" / "support" / "speedscope" / "file-format-schema.json"
"""Of speedscope 1.25.0 (npm), which has the licence beside it."""

Totals = tuple[int, int]


@pytest.fixture(scope="module")
def recorded() -> Iterator[Victim]:
    with running([str(build("recorded", ("-g", "-pthread"))), str(COUNT)]) as victim:
        yield victim


@pytest.fixture(scope="module")
def raws(recorded: Victim, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return saved scans: one for leaks, and one of the live heap."""
    folder = tmp_path_factory.mktemp("raw")
    raw = {subject: folder / f"{subject}.rsc" for subject in ("leaks", "heap")}
    scan(recorded.pid, "--save", raw["leaks"])
    assert run_cli(["heap", recorded.pid, "--save", raw["heap"]]).status == 0
    return raw


@pytest.fixture(params=["leaks", "heap"])
def raw(raws: dict[str, Path], request: pytest.FixtureRequest) -> Path:
    return raws[request.param]


def totals(raw: Path) -> Totals:
    """Return what the machine report says: allocations and bytes of all that it is about."""
    report = json.loads(run_cli(["report", raw, "--json"]).out)
    amount = report[raw.stem]
    return amount["allocations"], amount["bytes"]


def written(raw: Path, format_: str, *options: str) -> bytes:
    made = raw.with_suffix(".out")
    done = run_cli(["report", raw, "--format", format_, *options, "-o", made])
    assert done.status in (0, 1), done.talk
    return made.read_bytes()


def folded(raw: Path, *options: str) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for line in written(raw, "folded", *options).decode().splitlines():
        path, number = line.rsplit(" ", 1)
        assert tuple(path.split(";")) not in found, "a stack comes once"
        found[tuple(path.split(";"))] = int(number)
    return found


def test_folded_stacks_add_up(raw: Path) -> None:
    allocations, amount = totals(raw)
    assert sum(folded(raw).values()) == amount
    assert sum(folded(raw, "--weight", "count").values()) == allocations
    sessions = [path for path in folded(raw) if "open_session()" in path[-2:][0]]
    assert len(sessions) == 1
    assert re.fullmatch(r".*make_session", sessions[0][-1])
    assert ("[no stack]",) in folded(raw)


def test_stacks_per_thread_are_the_whole_in_parts(raw: Path) -> None:
    whole, parts = folded(raw), folded(raw, "--per-thread")
    assert {path[0] for path in parts} == {"worker", "[no stack]"}
    joined: Counter[tuple[str, ...]] = Counter()
    for path, number in parts.items():
        joined[path[1:] if path[0] == "worker" else path] += number
    assert joined == whole


@pytest.mark.parametrize("weight", ["bytes", "count"])
def test_speedscope_profiles_add_up(raw: Path, weight: str) -> None:
    document = json.loads(written(raw, "speedscope", "--weight", weight))
    (profile,) = document["profiles"]
    wanted = totals(raw)[weight == "bytes"]
    assert profile["endValue"] == sum(profile["weights"]) == wanted
    assert len(profile["samples"]) == len(profile["weights"])
    frames = document["shared"]["frames"]
    found: Counter[tuple[str, ...]] = Counter()
    for stack, number in zip_equal(profile["samples"], profile["weights"]):
        found[tuple(frames[index]["name"] for index in stack)] += number
    assert found == folded(raw, "--weight", weight)
    jsonschema.validate(document, json.loads(SPEEDSCOPE_SCHEMA.read_text()))
    assert profile["unit"] == {"bytes": "bytes", "count": "none"}[weight]


FIELDS = {
    "ValueType": [(1, "type", "int64"), (2, "unit", "int64")],
    "Label": [(1, "key", "int64"), (2, "str", "int64"), (3, "num", "int64")],
    "Sample": [(1, "location_id", "uint64*"), (2, "value", "int64*"), (3, "label", "Label*")],
    "Mapping": [
        *((1, "id", "uint64"), (2, "memory_start", "uint64"), (3, "memory_limit", "uint64")),
        *((4, "file_offset", "uint64"), (5, "filename", "int64"), (6, "build_id", "int64")),
        *((7 + i, name, "bool") for i, name in enumerate(("functions", "filenames"))),
        *((9 + i, name, "bool") for i, name in enumerate(("line_numbers", "inline_frames"))),
    ],
    "Line": [(1, "function_id", "uint64"), (2, "line", "int64")],
    "Location": [
        *((1, "id", "uint64"), (2, "mapping_id", "uint64"), (3, "address", "uint64")),
        (4, "line", "Line*"),
    ],
    "Function": [
        *((1, "id", "uint64"), (2, "name", "int64"), (3, "system_name", "int64")),
        *((4, "filename", "int64"), (5, "start_line", "int64")),
    ],
    "Profile": [
        *((1, "sample_type", "ValueType*"), (2, "sample", "Sample*"), (3, "mapping", "Mapping*")),
        *((4, "location", "Location*"), (5, "function", "Function*"), (6, "string_table", "str*")),
        *((9, "time_nanos", "int64"), (14, "default_sample_type", "int64")),
    ],
}
"""What of profile.proto is used: number, name and type of fields; `*` for those that repeat."""


def profile_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", syntax="proto3", package="t")
    kind = descriptor_pb2.FieldDescriptorProto
    types = {
        "int64": kind.TYPE_INT64,
        "uint64": kind.TYPE_UINT64,
        "bool": kind.TYPE_BOOL,
        "str": kind.TYPE_STRING,
    }
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field, type_ in fields:
            label = kind.LABEL_REPEATED if type_.endswith("*") else kind.LABEL_OPTIONAL
            plain = type_.rstrip("*")
            made = message.field.add(name=field, number=number, label=label)
            made.type = types.get(plain, kind.TYPE_MESSAGE)
            if plain not in types:
                made.type_name = f".t.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Profile"))


def test_pprof_profiles_add_up(raw: Path) -> None:
    profile = profile_class()()
    profile.ParseFromString(gzip.decompress(written(raw, "pprof")))
    text = list(profile.string_table)
    assert text[0] == ""
    values = [(text[v.type], text[v.unit]) for v in profile.sample_type]
    assert values == [
        *(("Total malloc count", "count"), ("Total malloc size", "bytes")),
        *(("Unreleased malloc count", "count"), ("Unreleased malloc size", "bytes")),
    ]
    assert text[profile.default_sample_type] == "Unreleased malloc size"
    sums = [sum(sample.value[i] for sample in profile.sample) for i in range(4)]
    assert sums == [*totals(raw), *totals(raw)]
    functions = {f.id: text[f.name] for f in profile.function}
    # pprof would take the same name for a mangled one, and leave out what is in angle brackets.
    assert all(f.system_name == 0 for f in profile.function)
    locations = {place.id: place for place in profile.location}
    mappings = {m.id: m for m in profile.mapping}
    found: Counter[tuple[str, ...]] = Counter()
    for sample in profile.sample:
        lines = [line for place in sample.location_id for line in locations[place].line]
        found[tuple(functions[line.function_id] for line in reversed(lines))] += sample.value[3]
    assert found == folded(raw)
    for place in profile.location:
        if place.mapping_id:
            mapping = mappings[place.mapping_id]
            assert mapping.memory_start <= place.address < mapping.memory_limit
            assert re.fullmatch(r"[0-9a-f]+", text[mapping.build_id])
    assert {text[s.label[0].str] for s in profile.sample if s.label} == {"worker"}


def test_heap_dumps_add_up(raw: Path) -> None:
    lines = written(raw, "heapdump").decode().splitlines()
    assert lines[:3] == ["Android Native Heap Dump v1.2", "", "Build fingerprint: 'unknown'"]
    said = dict(line.split(": ") for line in lines[4:7])
    records = []
    for line in lines[8 : lines.index("MAPS")]:
        record = re.fullmatch(r"z 0  sz +(\d+)  num    (\d+)  bt((?: [0-9a-f]+)*)", line)
        if record:
            records.append((int(record[1]), int(record[2]), record[3].split()))
        else:
            assert re.fullmatch(r'  bt_info(?: \{"[^"]*" [0-9a-f]+ "[^"]*" [0-9a-f]+\})+', line)
    assert int(said["Total memory"]) == sum(size * number for size, number, _ in records)
    assert int(said["Allocation records"]) == len(records) == len({str(r) for r in records})
    assert int(said["Backtrace size"]) == max(len(frames) for _, _, frames in records)
    assert sum(number for _, number, _ in records) == totals(raw)[0]
    assert [size for size, _, _ in records] == sorted((r[0] for r in records), reverse=True)
    # What was asked for, not what the allocator made of it.
    assert {(48, COUNT), (100, COUNT), (200, COUNT), (300, 1)} <= {r[:2] for r in records}
    assert lines[-1] == "END"
    maps = lines[lines.index("MAPS") + 1 : -1]
    pattern = r"[0-9a-f]+-[0-9a-f]+ [r-][w-][x-][ps] [0-9a-f]+ 00:00 \d+(?: +.*)?"
    assert maps and all(re.fullmatch(pattern, line) for line in maps)
    ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    for pc in {frame for _, _, frames in records for frame in frames}:
        assert any(start <= int(pc, 16) < end for start, end in ranges)


def test_raphael_reports_add_up(raw: Path) -> None:
    blocks = written(raw, "raphael").decode().strip("\n").split("\n\n")
    allocations = amount = 0
    for block in blocks:
        head, *frames = block.split("\n")
        address, size, count = head.split(", ")
        assert re.fullmatch(r"0x[0-9a-f]{16}", address)
        allocations += int(count)
        amount += int(size) * int(count)
        for frame in frames:
            known = r"\S+ \((?:unknown|.+ \+ (?:\d+|\?))\)"
            assert re.fullmatch(rf"0x[0-9a-f]{{16}} (?:<unknown>|<anonymous:.*>|{known})", frame)
    assert (allocations, amount) == totals(raw)


def test_a_running_process_is_written_the_same_way(recorded: Victim, raws: dict[str, Path]) -> None:
    out = run_cli(["scan", recorded.pid, "--format", "folded"]).out
    assert out.encode() == written(raws["leaks"], "folded")


def test_a_process_that_is_not_recorded_has_no_stacks(victim: Any) -> None:
    target = victim("owners", 5)
    report = scan(target.pid)
    out = run_cli(["scan", target.pid, "--format", "folded"]).out
    assert out == f"[no stack] {report['leaks']['bytes']}\n"


@pytest.mark.parametrize("options", [["--weight", "count"], ["--per-thread"]], ids=" ".join)
def test_weights_and_threads_are_for_profiles(raws: dict[str, Path], options: list[str]) -> None:
    done = run_cli(["report", raws["leaks"], *options])
    assert done.status == 2 and "--format folded" in done.talk
