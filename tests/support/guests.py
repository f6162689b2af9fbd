"""What tests in emulated machines share: when they run, their programs, scripts and streams."""

from __future__ import annotations

import io
import os
from pathlib import Path

import emulator
import numpy as np
import pytest
from victims import KIND_DIRECT, KIND_INDIRECT, Truth

from reachscan.recording import model, wire, wire_columns
from reachscan.recording.decode import decode

FORM = os.environ.get("REACHSCAN_EMULATOR")
SHORT_FORM = FORM == "short"
EMULATED = pytest.mark.skipif(
    not FORM, reason="REACHSCAN_EMULATOR=1 or =short boots emulated machines, for some minutes"
)
ONLY_LONG = pytest.mark.skipif(SHORT_FORM, reason="not in the short form (REACHSCAN_EMULATOR=1)")

SHORT = "-32"
"""Added to the names of 32-bit programs."""
COMPILERS = {"": ("aarch64-linux-gnu-gcc", []), SHORT: ("arm-linux-gnueabihf-gcc", ["-mfpu=neon"])}
FIXTURES = ("ground_truth", "leak_graph", "roots", "busy_threads", "transparent")
BUSY_LEAKS = 200
NO_PARENT = 0xFFFFFFFF

# Starts a target as $p, waits for its first line, which must not be that of the one before, and
# until it sleeps: one that still runs keeps what it used last in registers and on its stack. Ends
# it, which lets it check itself.
LIBRARY = """
start() {
  rm -f /tmp/in /tmp/out; mkfifo /tmp/in
  "$@" </tmp/in >/tmp/out & p=$!
  exec 4>/tmp/in
  until test -s /tmp/out; do kill -0 $p || exit 90; sleep 0.1; done
  until rests; do kill -0 $p || exit 90; sleep 0.1; done
}
rests() { local state; read -r _ _ state _ </proc/$p/stat && test $state = S; }
finish() { exec 4>&-; wait $p || exit 91; }
# An emulated machine on a busy one is slow.
scan() { reachscan-helper --pid $p --max-pause 60000 --timeout 300 "$@"; }
"""


def run(guest: emulator.Guest, script: str) -> str:
    done = guest.run(LIBRARY + script)
    assert done.status == 0, f"status {done.status}: {done.out}"
    return done.out


def blocks(stream: Path) -> Truth:
    """Return the blocks of a stream (address, size, kind) that tells of no failure."""
    rows: list[Truth] = []
    last = 0
    for frame in wire.frames(io.BytesIO(stream.read_bytes())):
        last = frame.type
        assert frame.type != wire.FAILURE, wire.parse(frame)
        if frame.type == wire.LEAKS:
            columns = wire_columns.parse_leaks(frame)
            direct = columns.parent == NO_PARENT
            kinds = np.where(direct, KIND_DIRECT, KIND_INDIRECT).astype(np.uint64)
            rows.append(np.stack([columns.address, columns.size, kinds], axis=1))
    assert last == wire.FINAL
    found: Truth = np.concatenate(rows)
    return found[np.argsort(found[:, 0])]


def recording(stream: Path) -> model.Recording:
    return decode(wire.frames(io.BytesIO(stream.read_bytes())))
