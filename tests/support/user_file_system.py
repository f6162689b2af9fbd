"""File systems in user space: one that never answers, one that counts what it is told."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DEVICE = Path("/dev/fuse")
_LARGEST_REQUEST = 1 << 20
_VERSION = (7, 31)
_MNT_FORCE, _MNT_DETACH = 1, 2

# struct fuse_in_header and fuse_out_header, opcodes and answers of linux/fuse.h
_REQUEST = struct.Struct("<IIQQ")
_ANSWER = struct.Struct("<IiQ")
LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT = 1, 2, 3, 14, 15, 18, 25, 26
_FILE_NODE = 2
_FOLDER_MODE, _FILE_MODE = 0o40755, 0o100644
_VALID = 3600


@contextmanager
def _mounted(folder: Path, serve: Callable[[int], None]) -> Iterator[None]:
    """Mount a file system at a folder; skips the test if that cannot be done here."""
    if os.geteuid() != 0 or not _DEVICE.exists():
        pytest.skip("mounting a file system in user space takes root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"test", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        os.close(device)
        pytest.skip(f"a file system cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    server = threading.Thread(target=serve, args=(device,))
    server.start()
    try:
        yield
    finally:
        # Force ends what waits, and the server; the folder may stay mounted for a moment.
        if libc.umount2(os.fsencode(folder), _MNT_FORCE) != 0:
            assert libc.umount2(os.fsencode(folder), _MNT_DETACH) == 0
        server.join()
        os.close(device)


@contextmanager
def mute(folder: Path) -> Iterator[threading.Event]:
    """Mount one that never answers; the event says that somebody waits for it.

    Whoever waits cannot even be killed, until it is unmounted.
    """
    asked = threading.Event()

    def serve(device: int) -> None:
        for kind, number, _ in _requests(device):
            if kind == INIT:
                _answer(device, number, _initial_answer())
            else:
                asked.set()

    with _mounted(folder, serve):
        yield asked


class Told:
    """How often a file system was told of something, by the opcode."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._news = threading.Condition()

    def note(self, kind: int) -> None:
        with self._news:
            self._counts[kind] += 1
            self._news.notify_all()

    def count(self, kind: int) -> int:
        with self._news:
            return self._counts[kind]

    def wait_for(self, kind: int, count: int, seconds: float = 60.0) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self._counts[kind] >= count, seconds)


@contextmanager
def told(folder: Path) -> Iterator[Told]:
    """Mount one in which any name is an empty file, and that counts what it is told."""
    counts = Told()

    def serve(device: int) -> None:
        for kind, number, node in _requests(device):
            counts.note(kind)
            if kind != FORGET:
                _answer(device, number, _answer_to(kind, node))

    with _mounted(folder, serve):
        yield counts


def _requests(device: int) -> Iterator[tuple[int, int, int]]:
    """Yield opcode, number and node of each request until it is unmounted."""
    while True:
        try:
            request = os.read(device, _LARGEST_REQUEST)
        except OSError:
            return
        _, kind, number, node = _REQUEST.unpack_from(request)
        yield kind, number, node


def _answer(device: int, number: int, body: bytes) -> None:
    os.write(device, _ANSWER.pack(_ANSWER.size + len(body), 0, number) + body)


def _initial_answer() -> bytes:
    return struct.pack("<4I", *_VERSION, 0, 0).ljust(64, b"\0")


def _answer_to(kind: int, node: int) -> bytes:
    if kind == INIT:
        return _initial_answer()
    if kind == LOOKUP:
        return struct.pack("<4Q2I", _FILE_NODE, 0, _VALID, _VALID, 0, 0) + _attributes(_FILE_NODE)
    if kind == GETATTR:
        return struct.pack("<Q2I", _VALID, 0, 0) + _attributes(node)
    if kind == OPEN:
        return struct.pack("<Q2I", 1, 0, 0)
    return b""


def _attributes(node: int) -> bytes:
    mode = _FILE_MODE if node == _FILE_NODE else _FOLDER_MODE
    return struct.pack("<6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
