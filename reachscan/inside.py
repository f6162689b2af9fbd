"""Scans its own process through libreachscan; its results never keep a leak reachable."""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from typing import NamedTuple

from reachscan import config, errors

_FAILED = 3
_MAX_LEAKS = 10_000
"""Leaks that one check lists."""


class _Leak(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("counts", ctypes.c_size_t * 6),
        ("total_size", ctypes.c_size_t),
        ("contents", ctypes.c_char * 32),
        ("backtrace", ctypes.c_size_t * (1 + 16 + 8)),
        ("is_possible", ctypes.c_size_t),
        ("reserved", ctypes.c_size_t * 7),
    )


class _Report(ctypes.Structure):
    _fields_ = (
        ("leaks", ctypes.POINTER(_Leak)),
        ("listed", ctypes.c_size_t),
        ("totals", ctypes.c_size_t * 6),
        ("pause_ns", ctypes.c_uint64),
        ("error", ctypes.c_char * 256),
        ("reserved", ctypes.c_size_t * 8),
    )


class _Options(ctypes.Structure):
    _fields_ = (
        ("limit", ctypes.c_size_t),
        ("max_pause_ms", ctypes.c_uint),
        ("timeout_s", ctypes.c_uint),
        ("method", ctypes.c_char_p),
        ("list_possible", ctypes.c_size_t),
        ("reserved", ctypes.c_size_t * 7),
    )


class OwnLeak(NamedTuple):
    """A leaked structure of this process.

    Attributes:
        key: identifies the block; storing its address would make the block reachable.
        size: bytes, including the blocks below it.
        text: a description for people.
        is_possible: whether it may still be in use.
    """

    key: bytes
    size: int
    text: str
    is_possible: bool


def check() -> list[OwnLeak]:
    """Return the leaks of this process, the definite ones first, the largest first in each part.

    Raises:
        HelperUnavailableError: the library is missing.
        UnscannableError: the scan failed.
    """
    library = _library()
    report = _Report()
    options = _Options(limit=_MAX_LEAKS, list_possible=1)
    if library.reachscan_check(ctypes.byref(options), ctypes.byref(report)) == _FAILED:
        raise errors.UnscannableError(report.error.decode(), "scan it from outside")
    try:
        return [_describe(library, report.leaks[i]) for i in range(report.listed)]
    finally:
        library.reachscan_report_free(ctypes.byref(report))


def _describe(library: ctypes.CDLL, leak: _Leak) -> OwnLeak:
    length = library.reachscan_leak_text(ctypes.byref(leak), True, None, 0)
    text = ctypes.create_string_buffer(length + 1)
    library.reachscan_leak_text(ctypes.byref(leak), True, text, length + 1)
    key = hashlib.blake2b(ctypes.string_at(ctypes.byref(leak), 2 * ctypes.sizeof(ctypes.c_size_t)))
    described = text.value.decode("ascii", "replace")
    return OwnLeak(key.digest()[:16], leak.total_size, described, bool(leak.is_possible))


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(os.fspath(config.LIBRARY))
    except OSError as error:
        raise errors.HelperUnavailableError(f"libreachscan cannot be loaded: {error}") from error
    library.reachscan_leak_text.restype = ctypes.c_size_t
    library.reachscan_leak_text.argtypes = (
        ctypes.POINTER(_Leak),
        ctypes.c_bool,
        ctypes.c_char_p,
        ctypes.c_size_t,
    )
    return library
