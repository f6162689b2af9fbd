"""What runtimes lose by design is suppressed by default, and shown all the same."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from growing import growing_jq
from scans import Finished, run_cli
from victims import need, wait_blocked

WAITS = """
public class Waits {
  public static void main(String[] arguments) throws Exception {
    System.out.println("up");
    System.in.read();
  }
}
"""

QUARKS = """
import ctypes, sys
glib = [ctypes.CDLL(library) for library in sys.argv[1:]][-1]
for number in range(7000):  # a table is full with 2048
    glib.g_quark_from_string(b"%d" % number)
print("up", flush=True)
sys.stdin.read()
"""


def scan_once_up(command: Sequence[str | Path]) -> tuple[Finished, Finished]:
    """Scan a program that says "up", with the default suppressions and without."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            # Frames on the way to the wait lie on words that are left from earlier ones.
            wait_blocked(process.pid)
            done = run_cli([process.pid, "--json"])
            unsuppressed = run_cli([process.pid, "--json", "--no-default-suppressions"])
        finally:
            process.kill()
    return done, unsuppressed


def test_options_of_the_java_launcher(tmp_path: Path) -> None:
    java = need("java", "openjdk-17-jre-headless")
    source = tmp_path / "Waits.java"
    source.write_text(WAITS)
    done, unsuppressed = scan_once_up([java, source])
    (rule,) = json.loads(done.out)["suppressed"]["rules"]
    assert rule["source"].startswith("default:") and rule["allocations"] >= 1
    assert rule["reason"]
    assert json.loads(unsuppressed.out)["suppressed"]["allocations"] == 0


def test_old_tables_of_quarks() -> None:
    libraries = [f"lib{name}-2.0.so.0" for name in ("gobject", "glib")]
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError:
            pytest.skip(f"needs {library}: apt install libglib2.0-0")
    command = [sys.executable, "-c", QUARKS, *libraries]
    done, unsuppressed = scan_once_up(command)
    (rule,) = json.loads(done.out)["suppressed"]["rules"]
    assert rule["source"].startswith("default:") and "quarks" in rule["reason"]
    # Of three tables of 16, 32 and 48 KiB, a word that nobody uses any more may point to one.
    assert rule["allocations"] in (2, 3) and rule["bytes"] >= 16392 + 32776
    assert json.loads(unsuppressed.out)["counted"]["allocations"] >= 2


def test_suppressions_and_baseline_of_a_growing_program(tmp_path: Path) -> None:
    rules, kept = tmp_path / "known.supp", tmp_path / "old.rsc"
    rules.write_text("key: * | heap*  # jq 1.6, ltrimstr\n")
    with growing_jq() as jq:
        jq.leak(100)
        assert run_cli([jq.pid, "--save", kept]).status == 1
        known = run_cli([jq.pid, "--baseline", kept, "--json"])
        jq.leak(100)
        grown = run_cli([jq.pid, "--baseline", kept, "--json"])
        suppressed = run_cli([jq.pid, "--suppressions", rules, "--json"])
    assert (known.status, grown.status, suppressed.status) == (0, 1, 0)
    for done in (known, grown, suppressed):
        report = json.loads(done.out)
        baseline = report["baseline"] or {"known": {"allocations": 0, "bytes": 0}}
        for unit in ("allocations", "bytes"):
            parts = (report["counted"], report["suppressed"], baseline["known"])
            assert sum(part[unit] for part in parts) == report["leaks"][unit] > 0
    assert json.loads(grown.out)["groups"][0]["before"]["allocations"] > 0
