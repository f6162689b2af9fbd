"""A file system in user space that is mounted and then never answers."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DEVICE = Path("/dev/fuse")
_LARGEST_REQUEST = 1 << 20
_REQUEST = struct.Struct("<IIQ")
_INIT = 26
_VERSION = (7, 31)
_MNT_FORCE, _MNT_DETACH = 1, 2


@contextmanager
def mounted(folder: Path) -> Iterator[threading.Event]:
    """Mount it at a folder; the event says that somebody waits for it. Skips the test if it cannot.

    Whoever waits cannot even be killed, until it is unmounted.
    """
    if os.geteuid() != 0 or not _DEVICE.exists():
        pytest.skip("mounting a file system in user space takes root and /dev/fuse")
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"mute", os.fsencode(folder), b"fuse", 0, options.encode()) != 0:
        os.close(device)
        pytest.skip(f"a file system cannot be mounted here: {os.strerror(ctypes.get_errno())}")
    asked = threading.Event()
    server = threading.Thread(target=_serve, args=(device, asked))
    server.start()
    try:
        yield asked
    finally:
        # Force ends what waits, and the server; the folder may stay mounted for a moment.
        if libc.umount2(os.fsencode(folder), _MNT_FORCE) != 0:
            assert libc.umount2(os.fsencode(folder), _MNT_DETACH) == 0
        server.join()
        os.close(device)


def _serve(device: int, asked: threading.Event) -> None:
    while True:
        try:
            request = os.read(device, _LARGEST_REQUEST)
        except OSError:  # it was unmounted
            return
        _, kind, number = _REQUEST.unpack_from(request)
        if kind == _INIT:
            answer = struct.pack("<4I", *_VERSION, 0, 0).ljust(64, b"\0")
            os.write(device, struct.pack("<IiQ", 16 + len(answer), 0, number) + answer)
        else:
            asked.set()
