"""The table of formats: what it lists is there, and what is there is listed."""

from __future__ import annotations

import gzip
import inspect
import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from command_lines import Install, Runner, assert_refused
from loading import load_leaks
from streams import BSS, CODE, HEAP_END, HEAP_START, LIBRARY, LIBRARY_PATH, Leak, Stream

from reachscan import errors, reports
from reachscan.cli.console import Output
from reachscan.recording import model, wire
from reachscan.recording.origins import (
    NO_STACK,
    NOT_RECORDED,
    PYTHON,
    Call,
    Frame,
    Origins,
    Stacks,
)
from reachscan.reports import profile, profile_pprof, profile_raphael
from reachscan.result import LeakScan
from reachscan.scanning import load

FOLDER = Path(reports.__file__).parent
LISTED = [(subject, name) for subject, formats in reports.FORMATS.items() for name in formats]
BLOCK = wire.encode(
    wire.BLOCK, model.Block(HEAP_START, HEAP_START, 24, model.REACHABLE, 0)._asdict()
)
STREAMS = {
    reports.LEAKS: Stream(leaks=[Leak(24, [CODE + 8])]),
    reports.HEAP: Stream(kinds=[(3, 120, 40, HEAP_START, 0, 0, [CODE + 8])]),
    reports.EXPLAIN: Stream(kinds=[(1, 24, 24, HEAP_START, 0, 0, [1])], extra=BLOCK),
}


def module(subject: str, name: str) -> str:
    return reports.module_of(subject, reports.FORMATS[subject][name])


def test_every_module_of_a_subject_is_listed() -> None:
    modules = {path.stem for path in FOLDER.glob("*_*.py")}
    written = {name for name in modules if name.split("_")[0] in (*reports.FORMATS, "profile")}
    assert written == {module(*pair).rpartition(".")[2] for pair in LISTED}


@pytest.mark.parametrize(("subject", "name"), LISTED)
def test_every_format_is_written_the_same_way(subject: str, name: str) -> None:
    written = import_module(module(subject, name))
    assert len(inspect.signature(written.lines).parameters) == 3


@pytest.mark.parametrize("subject", STREAMS)
def test_a_saved_scan_is_written_in_each_format_of_its_subject(
    run: Runner, tmp_path: Path, subject: str
) -> None:
    file = tmp_path / "made.rsc"
    file.write_bytes(STREAMS[subject].encoded())
    assert load(file).subject == subject
    for name in reports.FORMATS[subject]:
        made = tmp_path / "made"
        words = ("report", file, "--format", name)
        assert run(*words, "-o", made).talk == ""
        if name == "pprof":
            assert made.read_bytes()[:2] == b"\x1f\x8b"
            continue
        shown = run(*words)
        assert shown.talk == ""
        # How long folding took differs, further below.
        assert shown.out.splitlines()[0] == made.read_text().splitlines()[0]
        assert shown.out[-1] == made.read_text()[-1] == "\n"


@pytest.mark.parametrize(
    ("command", "known"),
    [
        (
            "heap 1",
            "text, json, logfmt, html, folded, speedscope, pprof, heapdump, raphael",
        ),
        ("diff {file} {file}", "text, json, logfmt, html"),
        ("explain 1 4096", "text, json, logfmt"),
        ("watch 1", "text, json, logfmt"),
    ],
)
def test_other_formats_are_refused_by_what_there_is(
    run: Runner, saved: Path, command: str, known: str
) -> None:
    words = command.format(file=saved).split()
    done = run(*words, "--format", "csv")
    assert (done.status, done.out) == (2, "")
    assert f"{words[0]} cannot write the format 'csv'; choose {known}\n" in done.talk


def test_the_line_on_one_block_says_how_certain_its_leak_is(run: Runner, tmp_path: Path) -> None:
    address = HEAP_START + 0x10
    leaked = model.Block(address, address, 24, model.LEAKED, 0)
    seen = {"form": model.TAGGED, "about": address, "slot": BSS, "value": address | 1}
    words = [{**seen, "holder": model.ROOT_MEMORY, "index": 0, "block": 0, "size": 0}]
    extra = wire.encode(wire.BLOCK, leaked._asdict()) + wire.encode(wire.SIGHTINGS, words)
    doubts = [(0, 1, model.TAGGED)]
    stream = Stream(leaks=[Leak(24)], doubts=doubts, extra=extra, warnings=[("incomplete-x", "x")])
    file = tmp_path / "block.rsc"
    file.write_bytes(stream.encoded())
    block, word = run("report", file, "--format", "logfmt").out.splitlines()
    assert "state=leaked confidence=possible reason=tagged-pointer " in block
    assert " complete=false warnings=incomplete-x" in block
    assert "event=sighting " in word and " form=tagged-pointer kind=module " in word


@pytest.mark.parametrize("subject", [reports.HEAP, reports.EXPLAIN])
@pytest.mark.parametrize("option", ["--strict", "--suppressions", "--baseline"])
def test_which_leaks_count_is_not_asked_where_there_are_none(
    run: Runner, saved: Path, tmp_path: Path, subject: str, option: str
) -> None:
    file, known = tmp_path / "made.rsc", tmp_path / "known.supp"
    file.write_bytes(STREAMS[subject].encoded())
    known.write_text("size: 24\n")
    more = {"--strict": [], "--suppressions": [known], "--baseline": [saved]}[option]
    done = run("report", file, option, *more)
    assert (done.status, done.out) == (2, "") and "made.rsc is not about leaks" in done.talk


def test_a_report_on_one_block_has_no_page(run: Runner, tmp_path: Path) -> None:
    file, page = tmp_path / "block.rsc", tmp_path / "page.html"
    file.write_bytes(STREAMS[reports.EXPLAIN].encoded())
    done = run("report", file, "--format", "html", "-o", page)
    assert (done.status, done.out, page.exists()) == (2, "", False)
    assert "explain cannot write the format 'html'; choose text, json, logfmt" in done.talk
    with pytest.raises(errors.UnknownFormatError):
        reports.lines(reports.EXPLAIN, "html", load(file), reports.Selection())


def test_bytes_are_written_as_they_are_between_lines_of_text(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    raw = bytes(range(256))
    parts: list[str | bytes] = ["before", raw, "after"]
    Output(path=tmp_path / "made").write(lambda _: iter(parts))
    Output().write(lambda _: iter(parts))
    written = b"before\n" + raw + b"after\n"
    assert (tmp_path / "made").read_bytes() == capsysbinary.readouterr().out == written


def test_an_empty_heap_is_a_heap(run: Runner, tmp_path: Path) -> None:
    file = tmp_path / "empty.rsc"
    no_kinds = wire.frame_bytes(wire.Frame(wire.KINDS, bytes([0, 0, 0, 0, 8, 0, 0, 0])))
    file.write_bytes(Stream(extra=no_kinds).encoded())
    assert load(file).subject == reports.HEAP
    for name in reports.FORMATS[reports.HEAP]:
        made = tmp_path / "made"
        done = run("report", file, "--format", name, "-o", made)
        assert (done.status, done.talk) == (0, "") and b"no leaks" not in made.read_bytes()


def test_the_answer_to_another_question_is_refused(
    run: Runner, target: int, fake_helper: Install
) -> None:
    fake_helper(STREAMS[reports.LEAKS].encoded())
    assert_refused(run("heap", target), "the stream is damaged: it tells of leaks")


@pytest.mark.parametrize("words", [("--json", "--logfmt"), ("--format", "text", "--json")])
def test_a_watch_has_one_format(run: Runner, words: tuple[str, ...]) -> None:
    done = run("watch", 1, *words)
    assert done.status == 2 and "a report has one format" in done.talk


def test_a_watch_tells_programs(run: Runner, target: int, fake_helper: Install) -> None:
    fake_helper(STREAMS[reports.LEAKS].encoded())
    done = run("watch", target, "--every", "0.01", "--count", 2, "--json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["event"] for row in rows] == ["scan", "scan", "end"]
    assert (done.status, rows[1]["grew"]) == (0, False)


def test_a_profile_takes_the_usable_size_of_what_was_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "a.rsc"
    path.write_bytes(Stream(leaks=[Leak(24), Leak(24)]).encoded())
    scan, times = load_leaks(path), np.zeros(2, np.uint64)
    thread = np.array([NOT_RECORDED, 1], np.uint32)
    asked = np.array([0, 20], np.uint64)
    origins = Origins(np.full(2, NO_STACK), thread, times, times, asked)
    recorded = scan._replace(recording=scan.recording._replace(origins=origins))
    assert sorted(sample.requested for sample in profile.samples(recorded)) == [20, 24]


def recorded(tmp_path: Path) -> LeakScan:
    """Return a scan whose leak was allocated by a library, which a line of Python called."""
    path = tmp_path / "a.rsc"
    modules = [(LIBRARY, LIBRARY_PATH, b"\1\2"), (HEAP_END, Stream.exe, b"\3\4")]
    path.write_bytes(Stream(leaks=[Leak(24)], modules=modules).encoded())
    scan, one = load_leaks(path), np.ones(1, np.uint64)
    pc, closed = np.array([PYTHON, CODE], np.uint64), np.zeros(2, np.uint32)
    told = scan.recording._replace(
        origins=Origins(np.array([1]), np.ones(1, np.uint32), one, one, one),
        stacks=Stacks(np.array([NO_STACK, 0]), pc, closed),
        frames={
            Call(PYTHON, 0): (Frame(0, function="<module>", file="a.py", line=3),),
            Call(CODE, 0): (Frame(CODE, LIBRARY_PATH, "0102", 0x1000),),
        },
    )
    return scan._replace(recording=told)


def test_functions_of_python_have_no_line_in_a_list_of_addresses(tmp_path: Path) -> None:
    lines = [*profile_raphael.lines(recorded(tmp_path), reports.Selection())]
    assert lines[2:] == [f"{CODE - LIBRARY:#018x} {LIBRARY_PATH} (unknown)"]


def test_the_program_is_the_first_mapping_of_a_pprof_profile(tmp_path: Path) -> None:
    (packed,) = profile_pprof.lines(recorded(tmp_path), reports.Selection())
    texts = gzip.decompress(packed)
    assert 0 < texts.find(Stream.exe.encode()) < texts.find(LIBRARY_PATH.encode())


def test_live_blocks_that_are_not_recorded_have_their_usable_size(
    tmp_path: Path, run: Runner
) -> None:
    saved = tmp_path / "heap.rsc"
    saved.write_bytes(Stream(kinds=[(5, 120, 24, HEAP_START, 0, 0, [1])]).encoded())
    dump = run("report", saved, "--format", "heapdump").out.splitlines()
    (record,) = (line for line in dump if line.startswith("z 0"))
    assert record.split() == ["z", "0", "sz", "24", "num", "5", "bt"]
