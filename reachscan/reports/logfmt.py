"""Common parts of logfmt reports: lines of key=value."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Union

from reachscan.recording import model

Value = Union[str, int, bool, None]


def line(**fields: Value) -> str:
    """Return fields as key=value, quoted if needed; None is left out."""
    return " ".join(f"{key}={_text(value)}" for key, value in fields.items() if value is not None)


def who(target: model.Target) -> dict[str, Value]:
    """Return the fields that identify the process."""
    return {"pid": target.pid, "name": target.name}


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    # Readers of this format agree on JSON escapes within quotes.
    harmless = text and text.isascii() and text.isprintable() and not set(text) & set(' ="\\')
    return text if harmless else json.dumps(text)


def codes(warnings: Iterable[model.Warning]) -> str | None:
    """Return the codes of warnings; None if there are none."""
    return ",".join(warning.code for warning in warnings) or None
