"""Encodes the few kinds of Protocol Buffers fields that profiles use."""

from __future__ import annotations

from collections.abc import Iterable

_VARINT, _LENGTH = 0, 2


def number_field(number: int, value: int) -> bytes:
    """Return a field with an unsigned number of at most 64 bits; empty for 0."""
    return _varint(number << 3 | _VARINT) + _varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field with a text or an embedded message."""
    return _varint(number << 3 | _LENGTH) + _varint(len(value)) + value


def packed_field(number: int, values: Iterable[int]) -> bytes:
    """Return a packed field with several numbers."""
    return bytes_field(number, b"".join(map(_varint, values)))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
