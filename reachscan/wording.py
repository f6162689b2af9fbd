"""Formats amounts, durations and foreign names for people."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

_FILLER = "\0"
_PREFIXES = ("KiB", "MiB", "GiB", "TiB")


def size(count: int, digits: int = 1) -> str:
    """Return a number of bytes for people: `24 B`, `15.3 MiB`."""
    if count < 1024:
        return f"{count} B"
    value, prefix = float(count), ""
    for prefix in _PREFIXES:  # noqa: B007
        value /= 1024
        if value < 1023.95:
            break
    return f"{value:.{digits}f} {prefix}"


def number(value: int) -> str:
    """Return a number in at most eight characters: `99999999`, `100M`."""
    return str(value) if value < 10**8 else f"{value / 10**6:.0f}M"


def exact_size(count: int) -> str:
    """Return a number of bytes without a unit if it has at most eight digits."""
    return str(count) if count < 10**8 else size(count, digits=0)


def count(number: int, what: str) -> str:
    """Return a number of things: `1 block`, `2 blocks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def duration(seconds: float) -> str:
    """Return a time for people: `0.4 ms`, `1.25 s`."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def instant(ns: int) -> str:
    """Return a time, given in ns since the epoch, in the form of RFC 3339, in UTC."""
    from datetime import datetime, timedelta, timezone  # reports for people do not need it

    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=ns // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return a text that cannot control a terminal: control characters are escaped.

    So are bytes that are no UTF-8, for which Python has stand-ins in the names of files.
    """
    return "".join(c if c.isprintable() else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text in one or more lines of at most `width` columns on a terminal.

    Args:
        text: a text without control characters.
        width: maximum columns.
        indent: prefix of all lines but the first.
    """
    wide = "".join(c + _FILLER if _is_wide(c) else c for c in text)
    # Not at the top: a report without leaks needs neither this nor unicodedata.
    import textwrap

    lines = textwrap.wrap(wide, width, subsequent_indent=indent)
    # A long word broken inside a wide character makes its line one column too long.
    if any(line.lstrip().startswith(_FILLER) for line in lines):
        lines = textwrap.wrap(wide, width - 1, subsequent_indent=indent)
    # A line that was broken there may be left with a space at its end, or with nothing.
    stripped = (line.replace(_FILLER, "").rstrip() for line in lines)
    return [line for line in stripped if line] or [""]


def cut(text: str, width: int) -> str:
    """Return a text, shortened to this many columns on a terminal if it is longer."""
    ends = list(accumulate(1 + _is_wide(c) for c in text))
    if not ends or ends[-1] <= width:
        return text
    return text[: bisect_right(ends, width - 1)] + "\u2026"


def _is_wide(character: str) -> bool:
    if character.isascii():
        return False
    import unicodedata

    return unicodedata.east_asian_width(character) in "WF"
