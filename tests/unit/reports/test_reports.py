"""Reports: valid, of the right width, adding up, and safe to print."""

from __future__ import annotations

import json
import platform
import re
import shlex
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import streams
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import load_leaks
from streams import BSS, CODE, CONSTANTS, HEAP_START, HOST, Leak, Stream

import reachscan
from reachscan import wording
from reachscan.recording import model
from reachscan.reports import (
    DEFAULT_WIDTH,
    Selection,
    Style,
    confidence,
    heap_logfmt,
    leaks_json,
    leaks_logfmt,
    leaks_text,
    logfmt,
)
from reachscan.result import LeakScan, ScanResult
from reachscan.scanning import load

SCHEMA = json.loads((Path(reachscan.__file__).parent / "schema/report-v1.json").read_text())
LONG = "N3app" + "".join(f"9Namespac{i}" for i in range(10)) * 3 + "3FooE"

SAMPLE = Stream(
    leaks=[
        *[Leak(24, [CODE + 8, HEAP_START + 64, i], [4000, 500]) for i in range(5)],
        Leak(200, [CONSTANTS + 8, 5]),
        Leak(64, [int.from_bytes(b"secret!!", "little"), BSS, 0, 1 << 60]),
        Leak(0),
        Leak(1000, [CONSTANTS + 8, 5]),
        Leak(24, [CODE + 8, HEAP_START + 64], [48]),
    ],
    types={CONSTANTS + 8: LONG},
    shapes=(0, 6, 1) * 5 + (0,) * 6,
    doubts=[(18, 1, 3), (19, 2, 1)],
    warnings=[("incomplete-maps", "one mapping could not be read; " * 6)],
)


@pytest.fixture
def make(tmp_path: Path) -> Any:
    def make(stream: Stream) -> ScanResult:
        path = tmp_path / "made.rsc"
        path.write_bytes(stream.encoded())
        return load(path)

    return make


def report(result: LeakScan, **selection: Any) -> dict[str, Any]:
    lines = leaks_json.lines(result, Selection(**selection))
    document: dict[str, Any] = json.loads("\n".join(lines))
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    return document


@pytest.mark.parametrize("stream", [SAMPLE, Stream()], ids=["leaks", "none"])
@pytest.mark.parametrize("every_block", [False, True])
def test_json_follows_its_schema(make: Any, stream: Stream, every_block: bool) -> None:
    document = report(make(stream), every_block=every_block)
    assert ("allocations" in document) == every_block


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_json_adds_up(make: Any) -> None:
    document = report(make(SAMPLE), every_block=True)
    leaks, groups, blocks = document["leaks"], document["groups"], document["allocations"]
    assert sum(g["allocations"] for g in groups) == leaks["direct_allocations"] == 10
    assert sum(g["bytes"] for g in groups) == leaks["direct_bytes"]
    assert sum(g["bytes"] + g["indirect_bytes"] for g in groups) == leaks["bytes"]
    assert sum(g["allocations"] + g["indirect_allocations"] for g in groups) == len(blocks)
    assert sum(block["size"] for block in blocks) == leaks["bytes"]
    for i, group in enumerate(groups):
        members = [block for block in blocks if block["group"] == i]
        assert sum(b["kind"] == "direct" for b in members) == group["allocations"]


def below(branches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for branch in branches for row in (branch, *below(branch["below"]))]


def test_details_of_a_group_add_up_to_it(make: Any) -> None:
    document = report(make(SAMPLE))
    for group in document["groups"]:
        rows = below(group["tree"])
        assert sum(row["allocations"] for row in rows) == group["indirect_allocations"]
        assert sum(row["bytes"] for row in rows) == group["indirect_bytes"]
        assert sum(row["allocations"] for row in group["sizes"]) == group["allocations"]
        assert sum(row["bytes"] for row in group["sizes"]) == group["bytes"]
    names = {row["name"] for group in document["groups"] for row in below(group["tree"])}
    assert names == {"text", "tree node", "block"}
    sizes = document["leaks"]["sizes"]
    assert sum(row["allocations"] for row in sizes) == document["leaks"]["allocations"]
    assert sum(row["bytes"] for row in sizes) == document["leaks"]["bytes"]
    assert [(row["smallest"], row["largest"]) for row in sizes[:2]] == [(0, 0), (16, 31)]


def test_what_is_only_possible_is_last_and_says_why(make: Any) -> None:
    document = report(make(SAMPLE), every_block=True)
    leaks, groups = document["leaks"], document["groups"]
    assert [group["reason"] for group in groups] == [None] * 4 + [
        "unreadable-memory",
        "one-past-the-end",
    ]
    possible = [group for group in groups if group["confidence"] == "possible"]
    assert len(possible) == 2
    blocks = [b for b in document["allocations"] if b["confidence"] == "possible"]
    amount = sum(group["bytes"] + group["indirect_bytes"] for group in possible)
    assert leaks["possible_bytes"] == amount == sum(b["size"] for b in blocks) == 1072
    assert leaks["possible_allocations"] == len(blocks) == 3


def test_every_doubt_has_a_name_and_words() -> None:
    reasons = model.REASONS
    assert set(confidence.NAMES) == reasons
    assert len({confidence.in_words(reason) for reason in reasons}) == len(reasons)


def test_json_says_when_and_how(make: Any) -> None:
    document = report(make(SAMPLE))
    assert document["snapshot"]["started"] == "2023-11-14T22:13:20.123456Z"
    assert document["snapshot"]["pause_us"] == 412
    assert {"freeze": 100, "clone": 312}.items() <= document["snapshot"]["phases_us"].items()
    assert document["complete"] is False
    assert document["target"]["command"] == ["victim", "--quietly"]


def test_a_phase_that_was_repeated_took_all_of_its_times(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = [{"phase": name, "ns": ns} for name, ns in (("clone", 3000), ("mark", 5000)) * 2]
    monkeypatch.setitem(streams.SNAPSHOT, "phases", phases)
    found = report(make(SAMPLE))["snapshot"]["phases_us"]
    assert (found["clone"], found["mark"]) == (6, 10)


def test_limit_leaves_totals_alone(make: Any) -> None:
    document = report(make(SAMPLE), limit=1)
    assert len(document["groups"]) == 1
    assert document["groups_total"] == 6
    assert document["leaks"]["allocations"] == 21


@pytest.mark.parametrize("module", [leaks_text, leaks_json, leaks_logfmt])
def test_contents_0_keeps_user_data_out(make: Any, module: Any) -> None:
    lines = "\n".join(module.lines(make(SAMPLE), Selection(contents=0)))
    assert "secret" not in lines
    assert b"secret".hex() not in lines
    shown = "\n".join(module.lines(make(SAMPLE), Selection(contents=32)))
    assert "secret" in shown or b"secret".hex() in shown


def columns(line: str) -> int:
    """Return how wide a terminal shows a line."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@given(
    name=st.text(),
    allocator=st.text(),
    symbol=st.text(),
    type_name=st.text(),
    message=st.text(max_size=300),
    sizes=st.lists(st.integers(0, 1 << 46), min_size=3, max_size=3),
    reason=st.sampled_from(sorted(model.REASONS)),
    width=st.sampled_from((80, DEFAULT_WIDTH)),
)
@settings(deadline=None)
def test_text_stays_within_its_width(
    name: str,
    allocator: str,
    symbol: str,
    type_name: str,
    message: str,
    sizes: list[int],
    reason: int,
    width: int,
) -> None:
    found = [Leak(size, [CONSTANTS + 8, CODE + 8], [40, *sizes]) for size in sizes]
    stream = Stream(
        leaks=[*found, Leak(24, [CODE + 8])],
        types={CONSTANTS + 8: type_name},
        names={CODE + 8: model.Name("/lib/lib.so", symbol, 0)},
        warnings=[("code", message)],
        doubts=[(5, 5, reason)],
        name=name,
        allocator=allocator,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.rsc")
        path.write_bytes(stream.encoded())
        result = load_leaks(path)
    for limit in (1, 20):
        selection = Selection(limit=limit, every_block=True)
        for line in leaks_text.lines(result, selection, Style(width=width)):
            assert columns(line) <= width
            assert line == line.rstrip()
            assert line.isprintable()


@given(st.text(st.sampled_from("a \u8a18\u61b6"), max_size=60), st.integers(5, 20))
def test_wrapped_lines_fit_whichever_characters_are_wide(text: str, width: int) -> None:
    lines = wording.wrap(text, width, "  ")
    assert max(map(columns, lines)) <= width
    assert lines == [line.rstrip() for line in lines]
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_text_tells_totals_and_what_it_leaves_out(make: Any) -> None:
    lines = list(leaks_text.lines(make(SAMPLE), Selection(limit=1)))
    assert lines[0].startswith("victim (pid 4711): 21 leaked blocks, 23.4 KiB, of 1000 allocated")
    assert "10 direct" in lines[1] and "11 indirect" in lines[1] and "paused 0.4 ms" in lines[1]
    assert lines[2] == "of these, 3 blocks (1.0 KiB) only possibly leaked"
    assert any("5 more kinds, shown by --limit 6" in line for line in lines)
    assert any("in all, 6 kinds" in line for line in lines)
    assert "(incomplete-maps)" in "".join(lines)


def test_text_shows_what_hangs_below_each_kind(make: Any) -> None:
    selection = Selection(limit=1, contents=0)
    lines = [line.rstrip() for line in leaks_text.lines(make(SAMPLE), selection)]
    table = lines[lines.index("") + 1 :]
    assert [" ".join(line.split()) for line in table[1:4]] == [
        "22.1 KiB 5 10 24 libexample.so.1+0x1008 | heap | ·",
        "5 4000 ├ text, 19.5 KiB",
        "5 500 └ tree node, 2.4 KiB",
    ]


def test_text_says_what_is_only_possible_and_which_sizes_there_are(make: Any) -> None:
    stream = Stream(
        leaks=[Leak(size, [CONSTANTS + 8]) for size in (24, 24, 40)],
        types={CONSTANTS + 8: "3Foo"},
        doubts=[(0, 3, model.TAGGED)],
    )
    lines = list(leaks_text.lines(make(stream), Selection(contents=0)))
    assert re.search(r" 3 +0 +24-40  Foo$", lines[5])
    assert "possible: there is a word that points to it" in lines[7]
    assert "2 of 24 bytes, 1 of 40 bytes" in lines[9]


def test_text_without_leaks_is_clear(make: Any) -> None:
    lines = list(leaks_text.lines(make(Stream()), Selection()))
    assert lines[0] == (
        "victim (pid 4711): no leaks: 1000 blocks, 62.5 KiB, all reachable (glibc 2.36)"
    )


@pytest.mark.parametrize(
    "left_out",
    [
        {"confirmation": model.Confirmation(10**9, (1, 1), vanished=(1, 8), recent=(0, 0))},
        {"confirmation": model.Confirmation(10**9, (1, 1), vanished=(0, 0), recent=(1, 8))},
        {"collectible": model.Collectible(1, 8)},
        {"warnings": (model.Warning(model.NOT_RECORDED, "some"),)},
    ],
)
def test_blocks_that_were_left_out_are_not_called_reachable(
    make: Any, left_out: dict[str, Any]
) -> None:
    scan = make(Stream())
    scan = scan._replace(recording=scan.recording._replace(**left_out))
    lines = list(leaks_text.lines(scan, Selection()))
    assert (
        lines[0]
        == "victim (pid 4711): no leaks that count among 1000 blocks, 62.5 KiB (glibc 2.36)"
    )


@pytest.mark.parametrize("module", [leaks_text, leaks_logfmt, leaks_json])
def test_hostile_names_cannot_steer_a_terminal(make: Any, module: Any) -> None:
    hostile = "a\x1b]0;owned\x07\nb\u202e"
    stream = Stream(leaks=[Leak()], name=hostile, allocator=hostile, warnings=[("c", hostile)])
    printed = "\n".join(module.lines(make(stream), Selection()))
    assert not set(printed) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1024**2 - 1, "1.0 MiB"),
        (16_000_000, "15.3 MiB"),
        (3 * 1024**4, "3.0 TiB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    assert wording.size(count) == shown


def parse(line: str) -> dict[str, str]:
    """Read a line the way log shippers do."""
    return dict(word.split("=", 1) for word in shlex.split(line))


def test_logfmt_can_be_read_back(make: Any) -> None:
    summary, *groups = map(parse, leaks_logfmt.lines(make(SAMPLE), Selection(contents=0)))
    assert (summary["event"], summary["pid"], summary["leaks"]) == ("scan", "4711", "21")
    assert summary["warnings"] == "incomplete-maps,no-symbols"
    assert len(groups) == int(summary["groups"]) == 6
    total = sum(int(g["bytes"]) + int(g["indirect_bytes"]) for g in groups)
    assert total == int(summary["leaked_bytes"])
    assert all("contents" not in g and re.fullmatch("0x[0-9a-f]+", g["example"]) for g in groups)


def test_logfmt_tells_what_hangs_below_and_which_sizes_there_are(make: Any) -> None:
    stream = Stream(
        leaks=[Leak(24, [CONSTANTS + 8], [100]), Leak(40, [CONSTANTS + 8], [100, 50])],
        types={CONSTANTS + 8: "3Foo"},
        shapes=(0, 6, 0, 6, 1),
    )
    _, group = map(parse, leaks_logfmt.lines(make(stream), Selection()))
    assert group["tree"] == "[2 text, 200 B] [1 tree node, 50 B]"
    assert group["sizes"] == "40:1,24:1"
    assert group["confidence"] == "definite" and "reason" not in group


def test_logfmt_of_the_heap_tells_keys(make: Any) -> None:
    result = make(Stream(kinds=[(3, 120, 40, HEAP_START, 0, 0, [CODE + 8])]))
    _, kind = map(parse, heap_logfmt.lines(result, Selection()))
    assert kind["key"] == result.groups(1)[0].key


@pytest.mark.parametrize(
    "value", ["", "two words", 'a"b', "a=b", "back\\slash", "new\nline", "plain"]
)
def test_logfmt_quotes_where_needed(value: str) -> None:
    line = logfmt.line(key=value, next=1)
    assert "\n" not in line
    quoted = line.removeprefix("key=").removesuffix(" next=1")
    assert (json.loads(quoted) if quoted.startswith('"') else quoted) == value


def test_text_tells_the_key_that_diff_and_suppressions_use(make: Any) -> None:
    rows = "\n".join(leaks_text.lines(make(SAMPLE), Selection()))
    for group in report(make(SAMPLE))["groups"]:
        named = f"      key {group['key']}\n" in rows
        assert named == (group["type"] is None)


def test_a_report_says_where_the_scan_was_made_and_what_made_the_report(make: Any) -> None:
    document = report(make(SAMPLE))
    assert document["host"] == HOST._asdict() and HOST.name != platform.node()
    assert document["reachscan"] == reachscan.__version__
    assert report(make(Stream(host=None)))["host"] is None, "streams of older versions do not tell"
