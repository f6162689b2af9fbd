"""Rows of a record (a count, then numbers and texts), read and written at high speed.

construct takes some 10 µs per field. That does not matter for a record that occurs once, but a file
of a few megabytes can hold a million rows.
"""

from __future__ import annotations

import struct
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from reachscan.recording.lean_construct import construct as c

U32, I32, U64 = c.Int32ul, c.Int32sl, c.Int64ul
BLOB = c.Prefixed(U32, c.GreedyBytes)
TEXT = c.ExprAdapter(
    BLOB,
    lambda raw, _: text_of(raw),
    lambda text, _: text.encode("utf-8"),
)

_COUNT = struct.Struct("<I")
_NUMBERS = {U32: "I", I32: "i", U64: "Q"}
_TYPES = {"u32": U32, "i32": I32, "u64": U64, "str": TEXT, "raw": BLOB}


def text_of(raw: bytes) -> str:
    """Return bytes as text; invalid UTF-8 stays readable."""
    return raw.decode("utf-8", "backslashreplace")


class _Piece(NamedTuple):
    """Fields [first, stop) of a row: numbers, the last of which may be the length of a text."""

    first: int
    stop: int
    numbers: struct.Struct
    text: c.Construct | None


class Rows(c.Construct):  # type: ignore[misc]  # construct has no types
    """A `u32` count and that many rows, read as named tuples; written from those or from dicts."""

    def __init__(self, **fields: c.Construct) -> None:
        super().__init__()
        self._names = tuple(fields)
        row: Any = namedtuple("Row", list(fields))  # type: ignore[misc]  # they vary
        self._make: Callable[[Sequence[Any]], Any] = row._make
        self._pieces = list(_pieces(tuple(fields.values())))
        self.least = sum(piece.numbers.size for piece in self._pieces)

    def _parse(self, stream: BytesIO, _context: object, _path: object) -> list[Any]:
        raw, at = stream.getvalue(), stream.tell()
        try:
            (count,) = _COUNT.unpack_from(raw, at)
            rows, end = self._read(raw, at + _COUNT.size, count)
        except struct.error as error:
            raise c.StreamError(f"rows are cut off: {error}") from error
        if end > len(raw):
            raise c.StreamError("the last row is cut off")
        stream.seek(end)
        return rows

    def _read(self, raw: bytes, at: int, count: int) -> tuple[list[Any], int]:
        if count * self.least > len(raw) - at:
            raise c.StreamError("there are fewer rows than counted")
        if len(self._pieces) == 1 and self._pieces[0].text is None:
            end = at + count * self.least
            found = self._pieces[0].numbers.iter_unpack(memoryview(raw)[at:end])
            return list(map(self._make, found)), end
        rows: list[Any] = []
        texts: dict[bytes, str] = {}  # file names occur many times
        for _ in range(count):
            values: list[Any] = []
            for _, _, numbers, text in self._pieces:
                values += numbers.unpack_from(raw, at)
                at += numbers.size
                if text is not None:
                    start, at = at, at + values[-1]
                    piece = raw[start:at]
                    values[-1] = piece if text is BLOB else texts.get(piece)
                    if values[-1] is None:
                        values[-1] = texts[piece] = text_of(piece)
            rows.append(self._make(values))
        return rows, at

    def _build(self, rows: Sequence[Any], stream: BytesIO, _context: object, _path: object) -> Any:
        stream.write(_COUNT.pack(len(rows)))
        for row in rows:
            stream.write(self.row_bytes(row))
        return rows

    def row_bytes(self, row: Mapping[str, Any] | Sequence[Any]) -> bytes:
        """Return the bytes of one row.

        Raises:
            construct.ConstructError: a number does not fit.
        """
        values = [row[name] for name in self._names] if isinstance(row, Mapping) else list(row)
        parts: list[bytes] = []
        try:
            for first, stop, numbers, text in self._pieces:
                own, tail = values[first:stop], b""
                if text is not None:
                    tail = own[-1] if text is BLOB else own[-1].encode("utf-8")
                    own[-1] = len(tail)
                parts += (numbers.pack(*own), tail)
        except struct.error as error:
            raise c.FormatFieldError(str(error)) from error
        return b"".join(parts)


class List(Rows):
    """Rows of a single field, each read as its plain value."""

    def __init__(self, field: c.Construct) -> None:
        super().__init__(value=field)
        self._make = _first

    def row_bytes(self, row: Any) -> bytes:
        """Return the bytes of one value."""
        return super().row_bytes((row,))


def _first(row: Sequence[Any]) -> Any:
    return row[0]


def _pieces(fields: Sequence[c.Construct]) -> Iterator[_Piece]:
    first = 0
    for at, field in enumerate(fields):
        is_text = field not in _NUMBERS
        if is_text or at == len(fields) - 1:
            letters = [_NUMBERS.get(part, "I") for part in fields[first : at + 1]]
            numbers = struct.Struct("<" + "".join(letters))
            yield _Piece(first, at + 1, numbers, field if is_text else None)
            first = at + 1


def layout_of(fields: str) -> c.Construct:
    """Return what reads and writes a record of small fields, from its `wire.LAYOUTS` entry."""
    made = dict(_fields(fields))
    return made[""] if list(made) == [""] else _struct(made)


def _fields(text: str) -> Iterator[tuple[str, c.Construct]]:
    """Yield names and types; a record that is nothing but rows has no name."""
    numbers, found, rows = text.partition("u32 n, n x ")
    yield from _plain(numbers)
    if not found:
        return
    if rows.startswith("{ "):
        row, _, rest = rows.removeprefix("{ ").partition(" }")
        name, _, rest = rest.strip().partition(", ")
        yield name, Rows(**dict(_plain(row)))
    else:
        row, _, rest = rows.partition(", ")
        ((name, kind),) = _plain(row)
        yield name, List(kind)
    yield from _plain(rest)


def _plain(text: str) -> Iterator[tuple[str, c.Construct]]:
    for field in filter(None, text.split(", ")):
        kind, name = field.split()
        yield name, _TYPES[kind]


def _struct(fields: Mapping[str, c.Construct]) -> c.Construct:
    # Only the fields, by name and as attributes, without what construct adds.
    return c.ExprAdapter(
        c.Struct(**fields),
        lambda row, _: c.Container((name, row[name]) for name in fields),
        lambda row, _: row,
    )
