"""The report as one page for browsers, which asks nothing of any network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from reachscan.reports import Selection, confidence, leaks_json
from reachscan.result import ScanResult

_UNSAFE_IN_SCRIPTS = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


def lines(result: ScanResult, selection: Selection) -> Iterator[str]:
    """Yield the page, as one piece without a line end.

    Args:
        result: what to report.
        selection: how much of it; single blocks are never listed.
    """
    style, script = _part("page.css"), _part("page.js")
    parts = {
        "policy": _policy(style, script),
        "title": _plain(f"{result.recording.target.name}: leaks"),
        "style": style,
        "script": script,
        "report": _data(leaks_json.document(result, selection)),
        "reasons": _data(
            {name: confidence.in_words(code) for code, name in confidence.NAMES.items()}
        ),
    }
    # In one go: what is put in is not looked at again.
    yield re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], _part("page.html").rstrip())


def _data(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).translate(_UNSAFE_IN_SCRIPTS)


def _plain(text: str) -> str:
    """Return text for HTML, in ASCII as all of the page is: nobody can get its encoding wrong."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _part(name: str) -> str:
    return files("reachscan.reports").joinpath("page").joinpath(name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    """Return a policy that lets the page run its own style and script, and load nothing."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
