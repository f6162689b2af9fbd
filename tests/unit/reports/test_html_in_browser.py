"""The page for browsers, looked at in one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, chromium
from scans import run_cli
from streams import CODE, CONSTANTS, HEAP_START, MAPPINGS, Leak, Stream

from reachscan.recording import model, wire

POOL = 0x7F10_0000_0000
HOSTILE = "</script><script>hacked=1</script><img src=x onerror=hacked=2><b>bold</b>"
VTABLES = {CONSTANTS + 8 * (i + 1): f"N3app5Kind{i}E" for i in range(3)}
LEAKS = [
    *[Leak(64, [CONSTANTS + 8], [72, 72, 40]) for _ in range(20)],
    *[Leak(size, [CONSTANTS + 16]) for size in (24, 24, 24, 400)],
    *[Leak(128, [CODE + 8, HEAP_START + 64]) for _ in range(3)],
    *[Leak(16, [7, 7]) for _ in range(5)],
    Leak(2000, [CONSTANTS + 24], [24, 24]),
]
SHAPES = (0, 1, 1, 6) * 20 + (0,) * 15
SAMPLE = Stream(leaks=LEAKS, types=VTABLES, shapes=SHAPES, doubts=[(92, 3, model.TAGGED)])
COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "bytes": lambda group: group["bytes"] + group["indirect_bytes"],
    "direct": lambda group: group["allocations"],
    "indirect": lambda group: group["indirect_allocations"],
    "size": lambda group: max(row["size"] for row in group["sizes"]),
    "sure": lambda group: group["confidence"],
    "what nothing points to": lambda group: group["type"] or group["signature"],
}


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as page:
        page.resize(1280)
        yield page


def show(page: Page, folder: Path, stream: Stream, *options: object) -> dict[str, Any]:
    """Open the page of a stream, and return what the report for programs says."""
    saved, made = folder / "made.rsc", folder / "made.html"
    saved.write_bytes(stream.encoded())
    done = run_cli(["report", saved, "--format", "html", "-o", made, *options])
    assert done.status in (0, 1) and not done.out, done.talk
    page.open(made)
    assert page.requests() == [made.as_uri()]
    report: dict[str, Any] = page.run("report")
    return report


def names(page: Page) -> list[str]:
    """Return what the rows of the table are about, in their order."""
    found: list[str] = page.run("[...document.querySelectorAll('td.what b')].map(e => e.innerText)")
    return found


def expected(groups: list[dict[str, Any]]) -> list[str]:
    return [group["type"] or group["signature"] for group in groups]


def test_it_shows_the_totals(page: Page, tmp_path: Path) -> None:
    report = show(page, tmp_path, SAMPLE)
    text = page.run("document.body.innerText")
    assert f"{report['leaks']['allocations']} blocks of heap memory" in text
    assert "3 of them only possibly" in text
    assert names(page) == expected(report["groups"])
    assert page.run("document.querySelectorAll('#sizes rect').length") >= len(
        report["leaks"]["sizes"]
    )
    assert not page.complaints()


def test_it_shows_how_much_of_the_memory_is_heap(page: Page, tmp_path: Path) -> None:
    pool = model.Mapping(POOL, POOL + (1 << 30), 0, 0, model.READ | model.WRITE, "")
    absent = wire.encode(wire.ABSENT, [])
    for more, good in (((), True), ((pool,), False)):
        report = show(page, tmp_path, Stream(mappings=(*MAPPINGS, *more), extra=absent))
        assert (report["warnings"] == []) == good
        text = page.run("document.body.innerText")
        total = "1.3 GiB" if more else "256.0 MiB"
        assert f"The heap is 256.0 MiB of {total} of private memory" in text
        assert ("1.0 GiB anonymous, 8.0 KiB data of modules" in text) == bool(more)
        assert (page.run("document.getElementById('summary').className") == "good") == good


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_sorts_both_ways(page: Page, tmp_path: Path, column: str) -> None:
    groups = show(page, tmp_path, SAMPLE)["groups"]
    button = f"thead th:nth-child({list(COLUMNS).index(column) + 1}) button"
    key = COLUMNS[column]
    orders = []
    for _ in range(2):
        page.click(button)
        orders.append(names(page))
    is_number = not isinstance(key(groups[0]), str)
    falling = expected(sorted(groups, key=key, reverse=True))
    rising = expected(sorted(groups, key=key))
    assert orders == ([falling, rising] if is_number else [rising, falling])
    page.click(button)
    assert names(page) == expected(groups)


def test_search_finds_names_and_what_hangs_below(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, SAMPLE)
    page.click("#search")
    page.type("KIND1")
    assert names(page) == ["app::Kind1"]
    assert page.run("byId('shown').innerText").startswith("1 of 5 kinds")
    page.run("byId('search').select()")
    page.type("tree node")
    assert names(page) == ["app::Kind0"]
    page.run("byId('search').select()")
    page.type("no such thing")
    assert names(page) == []


def test_a_row_opens_to_its_tree_and_sizes(page: Page, tmp_path: Path) -> None:
    report = show(page, tmp_path, SAMPLE)
    page.click("tr.group")  # the row itself opens too, not just its button
    lines = page.run("[...document.querySelectorAll('.tree li .branch')].map(e => e.innerText)")
    shown = [line.split("\n") for line in lines]
    assert shown == [["tree node", "2.8 KiB", "40", "72"], ["text", "800 B", "20", "40"]]
    assert report["groups"][0]["example"]["address"] in page.run("document.body.innerText")
    page.click("tr.group .toggle")
    assert page.run("document.querySelectorAll('tr.detail').length") == 0
    page.click("#search")
    page.type("kind1")
    page.click("tr.group .toggle")
    labels = page.run("[...document.querySelectorAll('.detail svg text')].map(e => e.textContent)")
    assert labels == ["3", "24", "1", "400"]
    assert not page.complaints()


def test_a_doubt_is_told_in_words(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, SAMPLE)
    page.click("#search")
    page.type("possible")
    page.click("tr.group .toggle")
    assert "if its other bits are left out" in page.run(
        "document.querySelector('.detail').innerText"
    )


def test_hostile_names_are_shown_and_not_obeyed(page: Page, tmp_path: Path) -> None:
    stream = Stream(
        leaks=[Leak(24, [CONSTANTS + 8]), Leak(40, [CODE + 8])],
        types={CONSTANTS + 8: HOSTILE},
        names={CODE + 8: model.Name("/lib/lib.so", HOSTILE, 0)},
        warnings=[("code", HOSTILE)],
        name=HOSTILE,
        allocator=HOSTILE,
        command=[HOSTILE],
    )
    show(page, tmp_path, stream)
    for i in range(2):
        page.click(f"tr.group:nth-last-of-type({i + 1}) .toggle")
    assert page.run("typeof hacked") == "undefined"
    assert page.run("document.querySelectorAll('img, td.what b b').length") == 0
    assert HOSTILE in names(page)
    assert page.run("document.title").startswith(HOSTILE)
    assert page.run("byId('title').innerText").startswith(HOSTILE)
    assert not page.complaints()


def test_names_do_not_change_how_others_are_read(page: Page, tmp_path: Path) -> None:
    name, written = "a\x1b[7m\n\u202e\U000e0001b", r"a\x1b[7m\n\u202e\U000e0001b"
    stream = Stream(
        leaks=[Leak(24, [CONSTANTS + 8])],
        types={CONSTANTS + 8: name},
        name=name,
        warnings=[("code", name)],
        command=[name],
    )
    show(page, tmp_path, stream)
    assert names(page) == [written]
    assert page.run("document.title").startswith(written)
    assert page.run("byId('title').innerText") == f"{written} pid 4711"
    shown = page.run("document.body.innerText.replaceAll('\\n', '').replaceAll('\\t', '')")
    assert shown.isprintable() and shown.count(written) >= 4


def test_nothing_else_can_run_in_it(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, SAMPLE)
    page.run("document.body.append(Object.assign(make('script'), {text: 'hacked = 3'}))")
    assert page.run("typeof hacked") == "undefined"
    assert (
        page.run("fetch('file:///etc/hostname').then(() => 'read', () => 'refused')") == "refused"
    )
    assert page.complaints()


def test_ten_thousand_kinds_are_made_as_they_come_into_sight(page: Page, tmp_path: Path) -> None:
    leaks = [Leak(16 + 8 * (i % 1000), [CODE + 8 * (i // 1000)]) for i in range(10_000)]
    report = show(page, tmp_path, Stream(leaks=leaks), "--limit", 10_000)
    assert len(report["groups"]) == 10_000
    assert len(names(page)) < 1000
    page.run(
        "new Promise(done => { const seen = new MutationObserver(() => done()); "
        "seen.observe(document.querySelector('tbody'), {childList: true}); "
        "byId('capture').scrollIntoView(); })"
    )
    assert 100 < len(names(page)) < 1000
    page.click("#search")
    page.type(report["groups"][9_000]["example"]["address"])
    assert names(page) == expected([report["groups"][9_000]])


def test_what_limit_leaves_out_is_said(page: Page, tmp_path: Path) -> None:
    report = show(page, tmp_path, SAMPLE, "--limit", 1)
    assert page.run("byId('hidden').innerText").startswith("4 more kinds")
    assert report["groups_total"] == 5


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_it_fits_any_window(page: Page, tmp_path: Path, width: int) -> None:
    page.resize(width)
    show(page, tmp_path, SAMPLE)
    page.click("tr.group .toggle")
    assert page.run("document.documentElement.scrollWidth") <= width
    page.resize(1280)


def test_it_is_light_or_dark_as_wanted(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, SAMPLE)
    brightness = []
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        colours = page.run("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
        paper, ink = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
        brightness.append(paper - ink)
    assert brightness[0] > 400 and brightness[1] < -400


@pytest.mark.parametrize(
    ("code", "says", "good"),
    [
        (model.NOT_RECORDED, "No leaks that count among 1,000 blocks", "good"),
        (model.UNRECORDED, "There are new leaks, but none was recorded, among 1,000 blocks", ""),
    ],
)
def test_leaks_that_are_left_out_are_not_called_reachable(
    page: Page, tmp_path: Path, code: str, says: str, good: str
) -> None:
    show(page, tmp_path, Stream(warnings=[(code, "some are left out")]))
    assert page.run("byId('summary').innerText").startswith(says)
    assert page.run("byId('summary').className") == good


def test_it_says_how_often_the_process_was_scanned(page: Page, tmp_path: Path) -> None:
    shared = {"every_ns": 2_000_000_000, "n": 3, "pauses_ns": [1000, 1000, 1000]}
    found = {"vanished": 4, "vanished_bytes": 96, "recent": 1, "recent_bytes": 24}
    collectible = wire.encode(wire.COLLECTIBLE, {"allocations": 2, "bytes": 128})
    extra = wire.encode(wire.CONFIRMATION, {**shared, **found}) + collectible
    show(page, tmp_path, Stream(extra=extra))
    text = page.run("document.body.innerText")
    assert "No leaks that count among" in text
    assert "only what was lost in each of 3 scans, 2.00 s apart; 4 blocks (96 B) gone again" in text
    assert "1 block (24 B) too recent to be sure of" in text
    assert "2 blocks (128 B) of Python objects in cycles" in text
    joined = {"hidden": 3, "hidden_bytes": 72, "withdrawn": 0, "withdrawn_bytes": 0, "rested": 0}
    show(page, tmp_path, Stream(extra=wire.encode(wire.MOMENTS, {**shared, **joined})))
    text = page.run("document.body.innerText")
    assert "what was lost in any of 3 scans, 2.00 s apart; 3 blocks (72 B) that words hide" in text


def test_no_leaks_are_good_news(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, Stream())
    assert "No leaks" in page.run("byId('summary').innerText")
    assert page.run("byId('groups').hidden && byId('sizes').hidden")
    assert not page.complaints()


@pytest.mark.parametrize("width", [360, 700, 1280])
def test_bytes_are_wholly_visible(page: Page, tmp_path: Path, width: int) -> None:
    page.resize(width)
    stream = Stream(leaks=[Leak(4096, [CODE + 8], [40])], contents={0: bytes(range(256)) * 16})
    show(page, tmp_path, stream, "--contents", 4096)
    page.click("tr.group .toggle")
    dump = page.run("document.querySelector('.detail pre').innerText")
    assert "0ff0  f0 f1" in dump
    hidden = "(e => e.scrollWidth - e.clientWidth)(document.querySelector('.detail pre'))"
    assert page.run(hidden) == 0
    page.resize(1280)


def test_a_legend_explains_the_words(page: Page, tmp_path: Path) -> None:
    show(page, tmp_path, SAMPLE)
    page.click("#legend summary")
    text = page.run("document.getElementById('legend').innerText")
    assert "indirect" in text and "a pointer to heap memory" in text and "perhaps" in text


def test_the_live_heap_has_a_page(page: Page, tmp_path: Path) -> None:
    kinds = [
        (3, 120, 40, HEAP_START, 0, 0, [CODE + 8]),
        (2, 4000, 2000, HEAP_START + 4096, 3, 0, [CONSTANTS + 8]),
    ]
    vtables = {CONSTANTS + 8: f"N3app4KindE{HOSTILE}"}
    report = show(page, tmp_path, Stream(kinds=kinds, types=vtables))
    assert report["format"] == "reachscan-heap" and len(report["groups"]) == 2
    assert names(page) == expected(report["groups"])
    assert page.run("byId('shown').innerText") == "2 of 2 kinds, 4.0 KiB"
    page.click("tr.group .toggle")
    assert "2 blocks, 3.9 KiB in arena 3" in page.run("document.querySelector('.detail').innerText")
    page.click("thead th:nth-child(2) button")
    assert names(page) == expected(report["groups"][::-1])
    assert page.run("typeof hacked") == "undefined"
    assert not page.complaints()


def test_a_comparison_has_a_page(page: Page, tmp_path: Path) -> None:
    old, new, made = (tmp_path / name for name in ("old.rsc", "new.rsc", "made.html"))
    old.write_bytes(Stream(leaks=LEAKS[:26], types=VTABLES).encoded())
    new.write_bytes(Stream(leaks=LEAKS[2:], types=VTABLES, exe=f"/{HOSTILE}").encoded())
    assert run_cli(["diff", old, new, "--format", "html", "-o", made]).status == 1
    page.open(made)
    changes = page.run("report.changes")
    assert {change["what"] for change in changes} == {"new", "grown", "shrunk"}
    assert names(page) == [change["key"] for change in changes]
    shrunk = page.run("[...document.querySelectorAll('tr.group')].pop().innerText")
    assert (
        shrunk.split("\t")[:2] != ["0", "0"] and "\N{MINUS SIGN}" in shrunk and "shrunk" in shrunk
    )
    page.click("tr.group .toggle")
    assert "Before" in page.run("document.querySelector('.detail').innerText")
    assert page.run("typeof hacked") == "undefined"
    assert not page.complaints()
