"""What tests in emulated machines share: when they run, their programs, scripts and streams."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import emulator
import numpy as np
import pytest
from unharmed import assert_undisturbed
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
FIXTURES = ("ground_truth", "leak_graph", "roots", "busy_threads", "transparent", "pipe_pointers")
DEATHS = int(os.environ.get("REACHSCAN_EMULATOR_DEATHS", "6" if SHORT_FORM else "24"))
DEATHS_OF_SCRIPT = 10
"""One script must not take longer than a machine is waited for."""
LOOKS = 600
"""For processes that are about to end."""
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
# How many threads of the target are stopped or traced.
held() {
  busybox awk '/^State:/ && $2 ~ /^[tT]/ || /^TracerPid:/ && $2 { ++n } END { print n + 0 }' \\
    /proc/$p/task/*/status
}
# How many processes run its program: it, its children and clones of it.
relatives() {
  local e n=0
  for e in /proc/[0-9]*/exe; do test $e -ef /proc/$p/exe && n=$((n + 1)); done
  echo $n
}
# An emulated machine on a busy one is slow.
scan() { reachscan-helper --pid $p --max-pause 60000 --timeout 300 "$@"; }
"""


def run(guest: emulator.Guest, script: str) -> str:
    done = guest.run(LIBRARY + script)
    assert done.status == 0, f"status {done.status}: {done.out}"
    return done.out


def assert_nobody_notices(guest: emulator.Guest, words: str, method: str) -> None:
    """Blocked calls go on, registers survive, no child is seen."""
    said = run(
        guest,
        f"""
        start transparent{words}; scan --method {method} >/mnt/stream; finish; tail -n 1 /tmp/out
        """,
    )
    counters = said[said.rindex('{"cut_short"') :]
    assert len(json.loads(counters)["cut_short"]) >= 40
    assert_undisturbed(counters)


def die_at_calls(guest: emulator.Guest) -> int:
    """Kill the helper before calls all over a scan; return how often it was alive by then.

    The target checks itself, and can be scanned again.
    """
    died = 0
    for first in range(0, DEATHS, DEATHS_OF_SCRIPT):
        said = run(
            guest,
            f"""
            # Two of its threads never rest, and would leave little of the machine to the helper.
            start nice -n 19 transparent; alone=$(relatives)
            set -- $(scan --method clone --count-calls 2>&1 >/dev/null); calls=$2
            died=0
            for ((i = {first}; i < {min(first + DEATHS_OF_SCRIPT, DEATHS)}; ++i)); do
              scan --method clone --die-at-call $((1 + calls * i / {DEATHS})) >/dev/null 2>&1
              test $? = 137 && died=$((died + 1))
              test $(held) = 0 || exit 92
            done
            scan --method clone >/mnt/stream || exit 93
            # The kernel takes a moment to end what a helper held.
            for try in {{1..{LOOKS}}}; do test $(relatives) = $alone && break; sleep 0.1; done
            test $(relatives) = $alone || exit 94
            finish; echo $died; tail -n 1 /tmp/out
            """,
        )
        deaths, counters = said.splitlines()[-2:]
        # If it dies between stop and repair, some calls return EINTR, as docs/safety.md says.
        assert_undisturbed(counters, cut_short=int(deaths))
        died += int(deaths)
        assert recording(guest.share / "stream").totals.allocations > 0
    return died


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
