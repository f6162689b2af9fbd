"""How amounts, durations and foreign names are put for people."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PREFIXES = ("KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """Return a number of bytes for people: `24 B`, `15.3 MiB`."""
    if count < 1024:
        return f"{count} B"
    value, prefix = float(count), ""
    for prefix in _PREFIXES:  # noqa: B007
        value /= 1024
        if value < 1023.95:
            break
    return f"{value:.1f} {prefix}"


def count(number: int, what: str) -> str:
    """Return a number of things: `1 block`, `2 blocks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return a time for people: `0.4 ms`, `1.25 s`."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def instant(ns: int) -> str:
    """Return a time, given in nanoseconds since the epoch, as RFC 3339 writes it, in UTC."""
    moment = _EPOCH + timedelta(microseconds=ns // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return a text that cannot steer a terminal: control characters are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
