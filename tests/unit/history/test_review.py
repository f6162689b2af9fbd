"""What counts: sums are exact, nothing is hidden, and the exit status follows."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import load_leaks
from streams import CODE, HEAP_START, Leak, Stream

import reachscan
from reachscan.history import census, suppressions
from reachscan.history.review import by_rule, review
from reachscan.judgement import COUNTS, KNOWN, NOTHING, SUPPRESSED, Tally
from reachscan.recording.zip_equal import zip_equal
from reachscan.reports import (
    DEFAULT_WIDTH,
    Selection,
    Style,
    leaks_json,
    leaks_logfmt,
    leaks_text,
)
from reachscan.result import LeakScan

EXAMPLES = 40  # each loads a recording or two
SCHEMA = json.loads((Path(reachscan.__file__).parent / "schema/report-v1.json").read_text())

some_leaks = st.lists(
    st.builds(
        Leak,
        size=st.sampled_from([24, 40, 64]),
        words=st.sampled_from([[], [CODE + 8], [CODE + 64], [HEAP_START]]),
        below=st.lists(st.sampled_from([8, 100]), max_size=3),
    ),
    max_size=12,
)
some_rules = st.lists(
    st.sampled_from(
        ["size: 24", "size: 24-40", "module: lib*", "key: *heap*", "type: x", "leak: x", "size: 9"]
    ),
    max_size=4,
)


def scanned(leaks: Sequence[Leak]) -> LeakScan:
    with tempfile.NamedTemporaryFile(suffix=".rsc") as file:
        file.write(Stream(leaks=leaks).encoded())
        file.flush()
        return load_leaks(Path(file.name))


def reviewed(
    leaks: Sequence[Leak], rules: Sequence[str] = (), baseline: Sequence[Leak] | None = None
) -> LeakScan:
    known = None if baseline is None else census.take(scanned(baseline), "day1.rsc")
    return review(scanned(leaks), list(suppressions.parse(rules, "f.supp")), known)


def document(result: LeakScan, **selection: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads("\n".join(leaks_json.lines(result, Selection(**selection))))
    jsonschema.validate(made, SCHEMA, cls=jsonschema.Draft202012Validator)
    return made


def total(*tallies: Tally) -> Tally:
    result = NOTHING
    for tally in tallies:
        result = result + tally
    return result


@settings(max_examples=EXAMPLES)
@given(some_leaks, some_rules, st.none() | some_leaks)
def test_sums_are_exact(leaks: list[Leak], rules: list[str], baseline: list[Leak] | None) -> None:
    result = reviewed(leaks, rules, baseline)
    found = document(result, limit=100, every_block=True)
    assert result.review
    assert total(*result.review.tallies) == Tally(
        found["leaks"]["allocations"], found["leaks"]["bytes"]
    )
    assert total(*(tally for _, _, tally in by_rule(result))) == result.review.tallies[SUPPRESSED]
    for name, tally in zip_equal(leaks_json.STANDINGS, result.review.tallies):
        some = [group for group in found["groups"] if group["standing"] == name]
        assert tally == Tally(
            sum(g["allocations"] + g["indirect_allocations"] for g in some),
            sum(g["bytes"] + g["indirect_bytes"] for g in some),
        )
    for i, group in enumerate(found["groups"]):
        members = [block["size"] for block in found["allocations"] if block["group"] == i]
        assert sum(members) == group["bytes"] + group["indirect_bytes"]


@given(some_leaks, some_rules)
def test_a_scan_knows_itself(leaks: list[Leak], rules: list[str]) -> None:
    result = reviewed(leaks, rules, baseline=leaks)
    assert result.counted == NOTHING
    assert result.groups_counted == 0


@settings(max_examples=EXAMPLES)
@given(some_leaks, some_leaks)
def test_what_grew_counts_and_nothing_else(old: list[Leak], more: list[Leak]) -> None:
    result = reviewed([*old, *more], baseline=old)
    keys = {group.key for group in result.groups(result.groups_counted)}
    assert keys == {group.key for group in scanned(more).groups(100)}


def test_the_first_rule_that_applies_takes_a_group() -> None:
    result = reviewed([Leak(24)], ["size: 24", "size: 24"])
    assert [rule.source for rule, _, _ in by_rule(result)] == ["f.supp:1"]


def test_without_a_review_everything_counts() -> None:
    result = scanned([Leak(24), Leak(40)])
    assert result.counted == Tally(2, 64)
    assert {group["standing"] for group in document(result)["groups"]} == {"counts"}


MIXED = [Leak(24), Leak(40, [], [100]), Leak(40), Leak(64)]


def mixed() -> LeakScan:
    rules = ["size: 24  # \x1b[2Jlong reason " + "words " * 30, "leak: malloc"]
    return reviewed(MIXED, rules, baseline=[Leak(40), Leak(64)])


def test_text_tells_what_does_not_count_and_why() -> None:
    for width in (80, DEFAULT_WIDTH):
        lines = list(leaks_text.lines(mixed(), Selection(), Style(width=width)))
        assert all(len(line) <= width and line.isprintable() for line in lines)
    assert lines[0].endswith("; 1 known, 1 suppressed")
    assert any("in day1.rsc there were 1 block, 40 B" in line for line in lines)
    assert any("known from day1.rsc, not grown: 1 kind" in line for line in lines)
    assert any("suppressed by f.supp:1: \\x1b[2Jlong reason" in line for line in lines)
    assert any("in all, 3 kinds" in line for line in lines)
    assert "suppression-needs-stacks" in "".join(lines)


def test_text_without_anything_that_counts() -> None:
    lines = list(leaks_text.lines(reviewed([Leak(24)], ["size: 24"]), Selection()))
    assert lines[0] == "victim (pid 4711): no leaks that count: 1 leaked block, 24 B, 1 suppressed"


def test_json_tells_what_does_not_count_and_why() -> None:
    found = document(mixed())
    assert found["counted"] == {"allocations": 3, "bytes": 180}
    assert found["suppressed"]["bytes"] == 24
    assert found["baseline"] == {"source": "day1.rsc", "known": {"allocations": 1, "bytes": 64}}
    assert [group["standing"] for group in found["groups"]] == ["counts", "known", "suppressed"]
    assert found["groups"][0]["before"] == {"allocations": 1, "bytes": 40}
    assert found["groups"][2]["rule"]["source"] == "f.supp:1"


def test_logfmt_tells_what_does_not_count_and_why() -> None:
    rows = [
        dict(word.split("=", 1) for word in shlex.split(line))
        for line in leaks_logfmt.lines(mixed(), Selection())
    ]
    assert [row["event"] for row in rows] == ["scan", "leak", "suppressed"]
    assert (rows[0]["counted"], rows[0]["suppressed"], rows[0]["known"]) == ("3", "1", "1")
    assert rows[2]["source"] == "f.supp:1"


def test_a_baseline_that_leaves_groups_out_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "short.json"
    path.write_text("\n".join(leaks_json.lines(scanned(MIXED), Selection(limit=1))))
    result = review(scanned(MIXED), [], census.read(path))
    assert result.review
    standing = result.review.standing.tolist()
    assert standing == [COUNTS, COUNTS, KNOWN]
    assert "groups-left-out" in {warning.code for warning in result.warnings}
