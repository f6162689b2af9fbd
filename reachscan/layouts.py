"""How records of a few rows lie in bytes: little-endian numbers, texts, arrays, structs of them.

Small, for it is loaded before every scan; records of many rows are columns (`wire_columns.py`).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any


class LayoutError(Exception):
    """Bytes that are fewer than their layout says, or a value that does not fit into it."""


class Row(dict[str, Any]):
    """The fields of a struct, by name; also as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Part(ABC):
    """What a layout consists of."""

    def parse(self, raw: bytes) -> Any:
        """Return the value that some bytes begin with.

        Raises:
            LayoutError: there are too few.
        """
        return self._read(raw, 0)[0]

    def build(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            LayoutError: it does not fit.
        """
        return self._written(value)

    @abstractmethod
    def _read(self, raw: bytes, at: int) -> tuple[Any, int]:
        """Return the value that begins somewhere, and where it ends."""

    @abstractmethod
    def _written(self, value: Any) -> bytes:
        """Return the bytes of a value."""


class Number(Part):
    """An integer of fixed size; `code` is its format character of the module `struct`."""

    def __init__(self, code: str) -> None:
        self.format = struct.Struct(f"<{code}")

    def _read(self, raw: bytes, at: int) -> tuple[int, int]:
        try:
            return self.format.unpack_from(raw, at)[0], at + self.format.size
        except struct.error as error:
            raise LayoutError(str(error)) from error

    def _written(self, value: int) -> bytes:
        try:
            return self.format.pack(value)
        except struct.error as error:
            raise LayoutError(str(error)) from error


U8, U16, U32, I32, U64 = (Number(code) for code in "BHIiQ")


class Blob(Part):
    """Bytes that follow their length."""

    def _read(self, raw: bytes, at: int) -> tuple[bytes, int]:
        length, at = U32._read(raw, at)
        if length > len(raw) - at:
            raise LayoutError(f"{length} bytes are said to follow, but {len(raw) - at} do")
        return raw[at : at + length], at + length

    def _written(self, value: bytes) -> bytes:
        return U32._written(len(value)) + value


class Text(Part):
    """A text in UTF-8 that follows its length; bytes that are none are written out."""

    def _read(self, raw: bytes, at: int) -> tuple[str, int]:
        value, at = BLOB._read(raw, at)
        return value.decode("utf-8", "backslashreplace"), at

    def _written(self, value: str) -> bytes:
        return BLOB._written(value.encode("utf-8"))


BLOB, TEXT = Blob(), Text()


class Fixed(Part):
    """So many values of one kind."""

    def __init__(self, count: int, part: Part) -> None:
        self._count, self._part = count, part

    def _read(self, raw: bytes, at: int) -> tuple[list[Any], int]:
        return _read_list(self._count, self._part, raw, at)

    def _written(self, value: Sequence[Any]) -> bytes:
        if len(value) != self._count:
            raise LayoutError(f"{len(value)} values, not {self._count}")
        return b"".join(map(self._part._written, value))


class Array(Part):
    """Values of one kind that follow their count."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def _read(self, raw: bytes, at: int) -> tuple[list[Any], int]:
        count, at = U32._read(raw, at)
        return _read_list(count, self._part, raw, at)

    def _written(self, value: Sequence[Any]) -> bytes:
        return U32._written(len(value)) + b"".join(map(self._part._written, value))


class Struct(Part):
    """Named fields, one behind the other."""

    def __init__(self, **fields: Part) -> None:
        self.fields = fields

    def _read(self, raw: bytes, at: int) -> tuple[Row, int]:
        row = Row()
        for name, part in self.fields.items():
            row[name], at = part._read(raw, at)
        return row, at

    def _written(self, value: Mapping[str, Any]) -> bytes:
        return b"".join(part._written(value[name]) for name, part in self.fields.items())


def _read_list(count: int, part: Part, raw: bytes, at: int) -> tuple[list[Any], int]:
    values = []
    # Every kind takes some bytes, so that a count that lies soon meets the end.
    for _ in range(count):
        value, at = part._read(raw, at)
        values.append(value)
    return values, at
