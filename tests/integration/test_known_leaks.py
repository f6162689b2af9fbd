"""What runtimes lose by design is suppressed by default, and shown all the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from growing import growing_jq
from scans import run_cli
from victims import need

WAITS = """
public class Waits {
  public static void main(String[] arguments) throws Exception {
    System.out.println("up");
    System.in.read();
  }
}
"""


def test_options_of_the_java_launcher(tmp_path: Path) -> None:
    java = need("java", "openjdk-17-jre-headless")
    source = tmp_path / "Waits.java"
    source.write_text(WAITS)
    pipe = subprocess.PIPE
    with subprocess.Popen([java, source], stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"up\n"
            done = run_cli([process.pid, "--json"])
            unsuppressed = run_cli([process.pid, "--json", "--no-default-suppressions"])
        finally:
            process.kill()
    (rule,) = json.loads(done.out)["suppressed"]["rules"]
    assert rule["source"].startswith("default:") and rule["allocations"] >= 1
    assert rule["reason"]
    assert json.loads(unsuppressed.out)["suppressed"]["allocations"] == 0


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
