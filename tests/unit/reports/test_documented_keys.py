"""The page on the machine reports tells of every key that their schemas have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
SCHEMAS = sorted((REPOSITORY / "reachscan/schema").glob("*.json"))
PAGE = REPOSITORY / "docs/report-format.md"


def keys(schema: Any) -> Iterator[str]:
    """Yield the names of all properties, at any depth."""
    if isinstance(schema, list):
        schema = dict(enumerate(schema))
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield from schema["properties"]
        for part in schema.values():
            yield from keys(part)


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_the_page_tells_of_every_key(schema: Path) -> None:
    told = set(re.findall(r"`([a-z_]+)`", PAGE.read_text()))
    prefixes = tuple(re.findall(r"`([a-z_]+_)…`", PAGE.read_text()))
    found = set(keys(json.loads(schema.read_text())))
    assert len(found) > 20
    assert {key for key in found - told if not key.startswith(prefixes)} == set()
