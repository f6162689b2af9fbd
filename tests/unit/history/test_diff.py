"""Censuses and their comparison: nothing invented, nothing lost, and bad files refused."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import BSS, CODE, HEAP_START, HOST, Leak, Stream

import reachscan
from reachscan import errors, reports
from reachscan.history import census
from reachscan.history.census import Census
from reachscan.history.comparison import WORSE, Comparison, What, compare
from reachscan.judgement import NOTHING, Tally
from reachscan.recording.zip_equal import zip_equal
from reachscan.reports import Selection, Style, diff_json, diff_logfmt, diff_text
from reachscan.scanning import load

SCHEMA = json.loads((Path(reachscan.__file__).parent / "schema/diff-v1.json").read_text())

tallies = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.builds(Tally, st.integers(1, 5), st.integers(0, 100)),
)


def taken(
    tallies: dict[str, Tally], *, unlisted: int = 0, hidden: Tally = NOTHING, **facts: Any
) -> Census:
    total = hidden
    for tally in tallies.values():
        total = total + tally
    usual = {
        "about": census.LEAKS,
        "source": "s",
        "pid": 1,
        "program": "/p",
        "started": "t",
        "method": "clone",
    }
    return Census(**{**usual, **facts}, tallies=tallies, total=total, unlisted=unlisted)


@given(tallies, st.integers(0, 3))
def test_a_scan_differs_in_nothing_from_itself(found: dict[str, Tally], unlisted: int) -> None:
    same = compare(taken(found, unlisted=unlisted), taken(found, unlisted=unlisted))
    assert same.changes == ()
    assert (same.unchanged, same.unclear, same.grew) == (len(found), 0, False)


@given(tallies, tallies)
def test_changes_add_up(old: dict[str, Tally], new: dict[str, Tally]) -> None:
    found = compare(taken(old), taken(new))
    total = NOTHING
    for change in found.changes:
        total = total + change.by
    assert total == found.by
    assert len(found.changes) + found.unchanged == len(old.keys() | new.keys())
    assert found.grew == any(change.what in WORSE for change in found.changes)


@given(tallies, tallies)
def test_the_other_way_round_is_the_opposite(old: dict[str, Tally], new: dict[str, Tally]) -> None:
    there = {c.key: c for c in compare(taken(old), taken(new)).changes}
    back = {c.key: c for c in compare(taken(new), taken(old)).changes}
    assert there.keys() == back.keys()
    for key, change in there.items():
        assert change.by == NOTHING - back[key].by
        assert (change.what is What.NEW) == (back[key].what is What.GONE)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (NOTHING, Tally(1, 8), What.NEW),
        (Tally(1, 8), Tally(2, 8), What.GROWN),
        (Tally(2, 8), Tally(1, 9), What.GROWN),
        (Tally(2, 8), Tally(3, 7), What.GROWN),
        (Tally(2, 8), Tally(1, 8), What.SHRUNK),
        (Tally(2, 8), NOTHING, What.GONE),
    ],
)
def test_what_a_change_is_called(old: Tally, new: Tally, what: What) -> None:
    sides = [taken({"k": tally} if tally != NOTHING else {}) for tally in (old, new)]
    (change,) = compare(*sides).changes
    assert change.what is what


def test_what_a_report_leaves_out_is_not_called_new_or_gone() -> None:
    short = taken({"a": Tally(1, 8)}, unlisted=1, hidden=Tally(1, 4))
    full = taken({"a": Tally(1, 8), "b": Tally(1, 4)})
    for found in (compare(short, full), compare(full, short)):
        assert (found.changes, found.unclear, found.grew) == ((), 1, False)
        assert [warning.code for warning in found.warnings] == ["groups-left-out"]
        assert "--limit 2" in found.warnings[0].message
    assert compare(short, taken({"a": Tally(1, 8), "b": Tally(1, 5)})).grew


def test_other_programs_and_methods_are_warned_of() -> None:
    found = compare(taken({}), taken({}, program="/other", method="copy"))
    assert [w.code for w in found.warnings] == ["different-programs", "different-methods"]


LEAKS = [
    Leak(24, [CODE + 64, HEAP_START], [100, 100]),
    Leak(24, [CODE + 80, HEAP_START]),
    Leak(40, [BSS]),
    Leak(64),
]


def saved(path: Path, stream: Stream, **selection: Any) -> tuple[Path, Path]:
    """Write a stream, and the JSON report on it."""
    raw, report = path.with_suffix(".rsc"), path.with_suffix(".json")
    raw.write_bytes(stream.encoded())
    result = load(raw)
    document = reports.lines(result.subject, "json", result, Selection(**selection))
    report.write_text("\n".join(map(str, document)))
    return raw, report


def facts(found: Census) -> tuple[Any, ...]:
    return found.pid, found.program, found.started, found.method, found.tallies, found.total


def test_raw_scan_and_report_are_the_same_census(tmp_path: Path) -> None:
    raw, report = map(census.read, saved(tmp_path / "a", Stream(leaks=LEAKS)))
    assert facts(raw) == facts(report)
    assert raw.tallies["24: libexample.so.1 | heap | value"] == Tally(4, 248)
    assert sum(tally.bytes for tally in raw.tallies.values()) == raw.total.bytes


def test_a_report_knows_what_it_leaves_out(tmp_path: Path) -> None:
    _, report = saved(tmp_path / "a", Stream(leaks=LEAKS), limit=1)
    found = census.read(report)
    assert (found.unlisted, len(found.tallies), found.total) == (3, 1, Tally(6, 352))


GOOD = {
    "format": "reachscan-report",
    "version": 1,
    "target": {"pid": 1, "exe": "/p"},
    "snapshot": {"started": "t", "method": "clone"},
    "leaks": {"allocations": 1, "bytes": 8},
    "groups_total": 1,
    "groups": [
        {"key": "k", "allocations": 1, "bytes": 8, "indirect_allocations": 0, "indirect_bytes": 0}
    ],
}
GROUP = GOOD["groups"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "empty"),
        ("nonsense", "neither a raw scan nor a JSON report"),
        ("\udcff", "neither"),
        ('{"a":' * 100_000, "neither"),
        ("[]", "neither"),
        (json.dumps(GOOD)[:-9], "cut off"),
        ('{"format": "\udcff"}', "damaged"),
        ('{"format": []}', "no report of a scan"),
        ('{"format": "other"}', "no report of a scan"),
        (json.dumps({**GOOD, "version": 2}), "version 2"),
        (json.dumps({**GOOD, "leaks": {}}), "no 'allocations'"),
        (json.dumps({**GOOD, "leaks": None}), "damaged"),
        (json.dumps({**GOOD, "target": {"pid": True, "exe": "/p"}}), "counts"),
        (json.dumps({**GOOD, "groups": [{**GROUP, "key": 7}]}), "names"),
        (json.dumps({**GOOD, "groups": [{**GROUP, "bytes": -1}]}), "counts"),
        (json.dumps({**GOOD, "groups": [{**GROUP, "bytes": 1e9}]}), "counts"),
        (json.dumps({**GOOD, "groups": [{**GROUP, "bytes": 1 << 80}]}), "counts"),
        (json.dumps({**GOOD, "groups": [{"allocations": 1}]}), "no 'key'"),
        (json.dumps({**GOOD, "groups": [[]]}), "damaged"),
        (json.dumps({**GOOD, "groups": 5}), "damaged"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(errors.ReachscanError, match=says):
        census.read(path)


def test_of_a_file_of_any_size_only_the_begin_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(errors.ReportFileError, match="neither a raw scan nor"):
        census.read(path)


def test_what_comes_through_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    contents = (Stream(leaks=[Leak(24)]).encoded(), json.dumps(GOOD).encode())
    for content in contents:
        file = tmp_path / "file"
        file.write_bytes(content)
        with subprocess.Popen(["cat", file], stdout=subprocess.PIPE) as copy:
            assert copy.stdout
            piped = census.read(Path(f"/dev/fd/{copy.stdout.fileno()}"))
        assert (piped.tallies, piped.total) == (census.read(file).tallies, piped.total)


def test_the_good_file_of_those_tests_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_text(json.dumps(GOOD))
    assert census.read(path).tallies == {"k": Tally(1, 8)}


def sample() -> Comparison:
    old = {"long " * 40: Tally(1, 8), "gone": Tally(2, 80), "same": Tally(1, 1)}
    new = {"long " * 40: Tally(5, 8000), "evil\x1b[2J\n": Tally(1, 10), "same": Tally(1, 1)}
    return compare(taken(old), taken(new, source="n\x1bew", method="copy", program="/p" * 80))


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("limit", [0, 1, 20])
def test_text_fits_and_cannot_steer_a_terminal(limit: int, width: int) -> None:
    rows = list(diff_text.lines(sample(), Selection(limit), Style(width=width)))
    assert all(len(row) <= width and row.isprintable() for row in rows)
    assert any("in all, 1 kind unchanged" in row for row in rows)
    assert any("shown by --limit" in row for row in rows) == (limit < 3)


@pytest.mark.parametrize("limit", [0, 1, 20])
def test_json_follows_its_schema(limit: int) -> None:
    document = json.loads("\n".join(diff_json.lines(sample(), Selection(limit))))
    jsonschema.validate(document, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert len(document["changes"]) == min(limit, 3)
    assert document["kinds"] == {
        "new": 1, "grown": 1, "shrunk": 0, "gone": 1, "unchanged": 1, "unclear": 0
    }  # fmt: skip


def test_logfmt_can_be_read_back() -> None:
    first, *others = diff_logfmt.lines(sample(), Selection(20))
    summary = dict(word.split("=", 1) for word in shlex.split(first))
    assert summary["event"] == "diff"
    assert (summary["bytes_by"], summary["by"], summary["grew"]) == ("7922", "3", "true")
    assert [shlex.split(other)[0] for other in others] == ["event=change"] * 3


def test_heaps_are_compared_like_leaks(tmp_path: Path) -> None:
    alike, changed = (5, 120, 24, HEAP_START, 0, 0), (2, 80, 40, HEAP_START + 128, 1, 0)
    old = saved(tmp_path / "old", Stream(kinds=[(*alike, [1]), (*changed, [CODE])]))
    new = saved(tmp_path / "new", Stream(kinds=[(*alike, [2]), (3, 120, *changed[2:], [CODE])]))
    assert census.read(old[0]).about == census.HEAP
    for before, now in zip_equal(old, new):
        found = compare(census.read(before), census.read(now))
        (change,) = found.changes
        assert (change.what, change.by) == (What.GROWN, Tally(1, 40))
        rows = list(diff_text.lines(found, Selection(20)))
        assert rows[0].startswith("victim: 1000 live blocks, 62.5 KiB")
        document = json.loads("".join(diff_json.lines(found, Selection(20))))
        jsonschema.validate(document, SCHEMA)
        assert document["new"]["about"] == "heap"


def test_leaks_are_not_compared_with_a_heap(tmp_path: Path) -> None:
    leaks = saved(tmp_path / "leaks", Stream(leaks=LEAKS))[0]
    heap = saved(tmp_path / "heap", Stream(kinds=[(5, 120, 24, HEAP_START, 0, 0, [1])]))[0]
    with pytest.raises(errors.ReportFileError, match=r"lists leaks, and .* lists all live blocks"):
        compare(census.read(leaks), census.read(heap))


def test_both_sides_say_on_which_machine_they_were_scanned(tmp_path: Path) -> None:
    raw, old = tmp_path / "new.rsc", tmp_path / "old.json"
    raw.write_bytes(Stream(leaks=[Leak(24)]).encoded())
    text = "\n".join(map(str, reports.lines(reports.LEAKS, "json", load(raw), Selection())))
    document = json.loads(text)
    assert document.pop("host") == HOST._asdict()
    old.write_text(json.dumps(document))
    sides = diff_json.document(reachscan.diff(old, raw), 10)
    assert (sides["old"]["host"], sides["new"]["host"]) == (None, HOST._asdict())
    old.write_text(text)
    assert reachscan.diff(old, raw).old.host == HOST
    old.write_text(json.dumps({**document, "host": 7}))
    with pytest.raises(errors.ReportFileError, match="damaged"):
        census.read(old)
