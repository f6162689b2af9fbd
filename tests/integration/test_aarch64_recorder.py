"""The recorder for aarch64, on a real kernel of that processor in an emulator: see test_aarch64."""

from __future__ import annotations

import shutil
import subprocess

import emulator
import pytest
from guests import COMPILERS, DEATHS, EMULATED, ONLY_LONG, run
from test_aarch64 import SMALL_PAGES, guest
from test_known_stacks import FLAGS, STATIC_RUNTIME, settings
from test_recorded_churn import assert_exact
from victims import REPOSITORY, build

from reachscan.capture.recording_options import VARIABLE, RecordingOptions

__all__ = ["guest"]

pytestmark = [EMULATED, ONLY_LONG]

RECORDER = "reachscan-recorder.so"
CC, CXX = COMPILERS[""][0], "aarch64-linux-gnu-g++"
CHURN_EVENTS = 400_000
DEATHS_OF_ATTACH = DEATHS // 3
SURROUNDINGS = """
import hashlib, sys
from pathlib import Path

process = Path("/proc") / sys.argv[1]
with (process / "mem").open("rb", buffering=0) as memory:
    for line in (process / "maps").read_text().splitlines():
        addresses, permissions, *rest = line.split()
        code = b""
        if permissions == "r-xp" and rest[-1].startswith("/"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            memory.seek(start)
            code = memory.read(end - start)
        if code or sys.argv[2] == "all":
            print(line, hashlib.sha256(code).hexdigest())
"""
"""Prints the mappings of a process, or those with code of files, and that code's digest."""


def run_recorded(guest: emulator.Guest, words: str) -> str:
    """Run a program with the recorder preloaded, as `reachscan run` would."""
    tree = REPOSITORY / "build/aarch64"
    subprocess.run(["cmake", "--build", tree, "--target", "reachscan-recorder"], check=True)
    shutil.copy(tree / RECORDER, guest.share)
    return run(
        guest,
        f"""
        export {VARIABLE}="{settings(RecordingOptions(depth=64))}"
        LD_PRELOAD=/mnt/{RECORDER} /mnt/{words}
        """,
    )


@SMALL_PAGES
@pytest.mark.parametrize(
    "flags",
    [("-fomit-frame-pointer",), ("-O0", "-g"), ("-mbranch-protection=standard",)],
    ids=" ".join,
)
def test_recorded_stacks_are_those_of_the_calls(
    guest: emulator.Guest, flags: tuple[str, ...]
) -> None:
    """The last ones sign their return addresses, which this processor checks."""
    # Some of its functions ask for what only x86_64 has.
    words = (*FLAGS, *STATIC_RUNTIME, "-Wno-attributes", *flags)
    shutil.copy(build("known_stacks", words, CXX), guest.share)
    for padding in (16, 64):
        plugin = ("-shared", "-fPIC", f"-DPADDING={padding}")
        built = build("known_stacks_plugin", plugin, CC)
        shutil.copy(built, guest.share / f"plugin{padding}.so")
    said = run_recorded(guest, "known_stacks /mnt/plugin16.so /mnt/plugin64.so")
    assert "\nok depth 300, 64 frames\n" in said


@SMALL_PAGES
def test_records_of_churn_are_exact(guest: emulator.Guest) -> None:
    shutil.copy(build("recorded_churn", (*FLAGS, *STATIC_RUNTIME), CXX), guest.share)
    assert_exact(run_recorded(guest, f"recorded_churn {CHURN_EVENTS}"))


@SMALL_PAGES
def test_records_after_attach_are_exact(guest: emulator.Guest) -> None:
    shutil.copy(build("recorded_churn", (*FLAGS, *STATIC_RUNTIME), CXX), guest.share)
    said = run(
        guest,
        f"""
        start recorded_churn {CHURN_EVENTS} wait
        scan --attach depth=64 >/dev/null || exit 92
        echo begin >&4; finish; tail -n 1 /tmp/out
        """,
    )
    assert_exact(said)


@SMALL_PAGES
def test_attach_and_detach_leave_no_trace(guest: emulator.Guest) -> None:
    """Those that die leave the code as it was; what is recorded after all of them is exact."""
    shutil.copy(build("recorded_churn", (*FLAGS, *STATIC_RUNTIME), CXX), guest.share)
    (guest.share / "surroundings.py").write_text(SURROUNDINGS)
    said = run(
        guest,
        f"""
        start recorded_churn {CHURN_EVENTS} wait
        look() {{ python3 /mnt/surroundings.py $p $1; }}
        before=$(look all) code=$(look code)
        set -- $(scan --attach depth=32 --count-calls 2>&1 >/dev/null); attaching=$2
        set -- $(scan --detach --count-calls 2>&1 >/dev/null); detaching=$2
        test "$(look all)" = "$before" || exit 93
        died=0
        die() {{ scan "$@" >/dev/null 2>&1; test $? = 137 && died=$((died + 1)); }}
        for ((i = 0; i < {DEATHS_OF_ATTACH}; ++i)); do
          die --attach depth=32 --die-at-call $((1 + attaching * i / {DEATHS_OF_ATTACH}))
          scan --attach depth=32 >/dev/null 2>&1  # refused if that one had hooked everything
          die --detach --die-at-call $((1 + detaching * i / {DEATHS_OF_ATTACH}))
          scan --detach >/dev/null 2>&1  # refused if that one had removed everything
          kill -0 $p || exit 94
        done
        # Of an attach that dies early, memory that nobody can access stays.
        test "$(look code)" = "$code" || exit 95
        scan --attach depth=32 >/dev/null || exit 96
        echo begin >&4; finish; tail -n 1 /tmp/out; echo $died
        """,
    )
    told, died = said.splitlines()
    assert_exact(told)
    assert int(died) >= DEATHS_OF_ATTACH
