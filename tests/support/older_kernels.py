"""Plays a kernel that lacks something, by a filter of system calls on the helper."""

from __future__ import annotations

import ctypes
import io
import struct
import subprocess

from scans import HELPER, PATIENCE

from reachscan.recording import model, wire
from reachscan.recording.decode import decode

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
IOCTL, PAGEMAP_SCAN, ENOTTY = 16, 0xC0606610, 25
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x00050000 | ENOTTY, 0x7FFF0000
NUMBER_AT, REQUEST_AT = 0, 24
"""Where the number of the call and its second argument stand in what a filter sees."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _refuse_page_scans() -> None:
    steps = (
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_EQUAL, 0, 3, IOCTL),
        (LOAD, 0, 0, REQUEST_AT),
        (JUMP_IF_EQUAL, 0, 1, PAGEMAP_SCAN),
        (RETURN, 0, 0, REFUSE),
        (RETURN, 0, 0, ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)) == 0


def recording_before_6_7(pid: int, *options: object) -> model.Recording:
    """Return what the helper says of a process where the kernel does not list pages at once."""
    done = subprocess.run(
        [str(HELPER), "--pid", str(pid), *map(str, options)],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        preexec_fn=_refuse_page_scans,
    )
    return decode(wire.frames(io.BytesIO(done.stdout)))
