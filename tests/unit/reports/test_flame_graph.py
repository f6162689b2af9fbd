"""The graph of who allocated what, looked at in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Page, chromium
from recorders import Recorded
from scans import run_cli
from streams import CODE, LIBRARY_PATH, Leak, Stream

from reachscan.recording import model

HOSTILE = "</script><img src=x onerror=hacked=1>;<b>"
MAIN, SMALL, BIG, COMMON, DEEP = (CODE + 0x10 * i for i in range(1, 6))
FUNCTIONS = {MAIN: "main", SMALL: "many_small", BIG: "one_big", COMMON: HOSTILE, DEEP: "deep"}
NAMES = {pc - 1: model.Name(LIBRARY_PATH, name, 0) for pc, name in FUNCTIONS.items()}
LEAKS = [*[Leak(16)] * 30, Leak(4096), Leak(64), Leak(320)]
ORIGINS = [
    *[((COMMON, SMALL, MAIN), 1, 0, 16)] * 30,
    ((COMMON, BIG, MAIN), 2, 0, 4096),
    None,
    ((DEEP,) * 200, 1, 0, 300),
]
TOTAL, COUNT = 30 * 16 + 4096 + 64 + 320, 33


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    recorded = Recorded(ORIGINS, threads={1: (7, "first"), 2: (8, "second")})
    folder = tmp_path_factory.mktemp("page")
    saved, made = folder / "made.rsc", folder / "made.html"
    saved.write_bytes(Stream(leaks=LEAKS, names=NAMES, extra=recorded.encoded()).encoded())
    assert run_cli(["report", saved, "--format", "html", "-o", made]).talk == ""
    with chromium() as page:
        page.resize(1280)
        page.open(made)
        yield page
        assert page.complaints() == [] and page.requests() == [made.as_uri()]


@pytest.fixture(autouse=True)
def fresh(page: Page) -> None:
    choose(page, "weight", "bytes")
    choose(page, "thread", "")
    page.run("document.getElementById('inverted').checked = false; growFlame()")
    search(page, "")


def choose(page: Page, which: str, value: str) -> None:
    where = f"document.getElementById('{which}')"
    page.run(f"{where}.value = '{value}'; {where}.dispatchEvent(new Event('change'))")


def search(page: Page, text: str) -> None:
    where = "document.getElementById('frames')"
    page.run(f"{where}.value = '{text}'; {where}.dispatchEvent(new Event('input'))")


def frames(page: Page) -> dict[str, float]:
    """Return the texts of all frames that are shown, and how wide they are."""
    script = """[...document.querySelectorAll('.frame')].map(g => [
        g.querySelector('title').textContent, g.querySelector('rect').getBoundingClientRect().width
    ])"""
    return dict(page.run(script))


def width(page: Page, name: str) -> float:
    (found,) = {wide for text, wide in frames(page).items() if text.startswith(f"{name}: ")}
    return found


def share(page: Page) -> str:
    text: str = page.run("document.getElementById('share').textContent")
    return text


def test_a_function_is_as_wide_as_its_bytes(page: Page) -> None:
    whole = width(page, "all")
    assert width(page, "one_big") / whole == pytest.approx(4096 / TOTAL, abs=0.01)
    assert width(page, "many_small") / whole == pytest.approx(30 * 16 / TOTAL, abs=0.01)
    assert width(page, "[no stack]") / whole == pytest.approx(64 / TOTAL, abs=0.01)


def test_or_as_its_blocks(page: Page) -> None:
    choose(page, "weight", "allocations")
    whole = width(page, "all")
    assert width(page, "many_small") / whole == pytest.approx(30 / COUNT, abs=0.01)
    assert width(page, "one_big") / whole == pytest.approx(1 / COUNT, abs=0.01)
    assert "33 blocks" in share(page)


def test_threads_are_the_whole_in_parts(page: Page) -> None:
    choose(page, "thread", "second")
    assert share(page) == "4.0 KiB, 100.0 %"
    assert not any(text.startswith("many_small") for text in frames(page))
    choose(page, "thread", "first")
    assert share(page) == f"{30 * 16 + 320} B, 100.0 %"


def test_inverted_it_begins_with_who_asked_for_memory(page: Page) -> None:
    page.click("#inverted")
    whole = width(page, "all")
    assert width(page, HOSTILE.replace(";", ":")) / whole == pytest.approx(
        (4096 + 30 * 16) / TOTAL, abs=0.01
    )


def test_a_search_says_how_much_matches(page: Page) -> None:
    search(page, "MANY")
    assert share(page) == f"{100 * 30 * 16 / TOTAL:.1f} % match"
    found = page.run("[...document.querySelectorAll('.found title')].map(t => t.textContent)")
    assert len(found) == 1 and found[0].startswith("many_small: 480 B")
    search(page, "deep")
    assert share(page) == f"{100 * 320 / TOTAL:.1f} % match"  # each block once


def test_a_click_makes_a_function_as_wide_as_all(page: Page) -> None:
    whole = width(page, "all")
    page.run(click("many_small"))
    assert width(page, "many_small") == whole == width(page, "main")
    assert share(page).startswith("480 B")
    page.run(click("all"))
    assert width(page, "many_small") < whole


def click(name: str) -> str:
    return f"""[...document.querySelectorAll('.frame')].find(
        g => g.querySelector('title').textContent.startsWith('{name}: ')
    ).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"""


def test_keys_do_the_same(page: Page) -> None:
    page.run(
        """[...document.querySelectorAll('.frame')].find(
        g => g.getAttribute('aria-label').startsWith('one_big')
    ).dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))"""
    )
    assert share(page).startswith("4.0 KiB")


def test_names_stay_names(page: Page) -> None:
    assert page.run("typeof hacked") == "undefined"
    assert page.run("document.querySelectorAll('img, b img').length") == 0


def test_a_stack_is_shown_with_its_kind(page: Page) -> None:
    page.click("tr.group")
    text: Any = page.run("document.querySelector('tr.detail').innerText")
    assert "Allocated by second (1)" in text and "one_big" in text and HOSTILE in text


def test_it_is_as_wide_as_the_window(page: Page) -> None:
    before = width(page, "all")
    page.resize(800)
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert width(page, "all") < before
    overflow = page.run(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    assert overflow
    page.resize(1280)


def test_a_process_that_is_not_recorded_has_no_graph(page: Page, tmp_path: Path) -> None:
    saved, made = tmp_path / "made.rsc", tmp_path / "made.html"
    saved.write_bytes(Stream(leaks=[Leak(24)]).encoded())
    run_cli(["report", saved, "--format", "html", "-o", made])
    assert "growFlame" not in made.read_text()
