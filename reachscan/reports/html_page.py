"""A self-contained page for browsers: a report and the script that displays it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any

from reachscan.wording import printable

_UNSAFE_IN_SCRIPTS = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


def page(
    subject: str,
    title: str,
    document: dict[str, Any],
    reasons: dict[str, str] | None = None,
    profile: dict[str, Any] | None = None,
) -> bytes:
    """Return the page.

    Args:
        subject: the subject; the script of that name displays it.
        title: title of the page.
        document: the report for programs.
        reasons: explanations of the reasons for doubt in it.
        profile: stacks for the flame graph; None if they are unknown.
    """
    style, script = _part("page.css"), _part("page.js") + _part(f"{subject}.js")
    if profile is not None:
        script += _part("flame.js")
    parts = {
        "policy": _policy(style, script),
        "title": _plain(printable(title)),
        "style": style,
        "script": script,
        "report": _data(document),
        "reasons": _data(reasons or {}),
        "profile": _data(profile),
    }
    # In one pass, so that inserted text is not searched again.
    page = re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], _part("page.html"))
    return page.encode("ascii")


def _data(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")).translate(_UNSAFE_IN_SCRIPTS)


def _plain(text: str) -> str:
    """Return text for HTML. The whole page is ASCII, so that no encoding can be wrong."""
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
