"""The page for browsers, as a file: whole, safe to open, and the same facts as the JSON report."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from loading import load_leaks
from streams import CODE, CONSTANTS, Leak, Stream

from reachscan.recording import model
from reachscan.reports import Selection, leaks_html, leaks_json
from reachscan.result import LeakScan

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\"'{{report}}\u2028\\ä"


@pytest.fixture
def hostile(tmp_path: Path) -> LeakScan:
    stream = Stream(
        leaks=[Leak(24, [CONSTANTS + 8]), Leak(40, [CODE + 8], [24])],
        types={CONSTANTS + 8: HOSTILE},
        names={CODE + 8: model.Name(f"/lib/{HOSTILE}", HOSTILE, 0)},
        warnings=[(HOSTILE, HOSTILE)],
        name=HOSTILE,
        allocator=HOSTILE,
        command=[HOSTILE],
    )
    path = tmp_path / "hostile.rsc"
    path.write_bytes(stream.encoded())
    return load_leaks(path)


def page(result: LeakScan, **selection: Any) -> str:
    (text,) = leaks_html.lines(result, Selection(**selection))
    return text.decode()


def content(text: str, tag: str) -> str:
    found = re.findall(f"<{tag}>(.*?)</{tag.split()[0]}>", text, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_it_holds_the_report_for_programs(hostile: LeakScan) -> None:
    data = content(page(hostile), 'script type="application/json" id="report"')
    assert json.loads(data) == leaks_json.document(hostile, Selection())


def test_names_stay_names(hostile: LeakScan) -> None:
    text = page(hostile)
    assert text.isascii()
    assert len(re.findall("<script", text)) == len(re.findall("</script", text)) == 4
    assert "<img" not in text and "<!--" not in text
    title = content(text, "title")
    assert title.startswith("&lt;/script&gt;") and not set(title) & set("<>\"'")


def test_it_asks_nothing_of_a_network(hostile: LeakScan) -> None:
    text = page(hostile)
    assert not re.findall(r'(?:src|href|action)\s*=\s*["\']', text.replace("src=x", ""))
    assert not re.findall(r"@import|url\(|fetch\(|XMLHttp|import\(", text)
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_policy_allows_only_its_own_style_and_script(hostile: LeakScan) -> None:
    text = page(hostile)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy[1].split(";"))
    for rule, tag in (("style-src", "style"), ("script-src", "script")):
        digest = base64.b64encode(hashlib.sha256(content(text, tag).encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
    assert set(rules.values()) == {"'none'"} and "default-src" in rules


def test_contents_0_keeps_user_data_out(tmp_path: Path) -> None:
    path = tmp_path / "secret.rsc"
    words = [int.from_bytes(b"secret!!", "little")]
    path.write_bytes(Stream(leaks=[Leak(24, words)]).encoded())
    result = load_leaks(path)
    assert b"secret".hex() in page(result)
    assert b"secret".hex() not in page(result, contents=0)
