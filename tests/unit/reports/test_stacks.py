"""Stacks in text."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_lines import Runner
from recorders import Recorded
from streams import CODE, Leak, Stream

SHOWN = 24


@pytest.mark.parametrize(
    ("depth", "more"),
    [
        (SHOWN, []),
        (SHOWN + 1, ["and 1 more caller, told by --json"]),
        (SHOWN + 2, ["and 2 more callers, told by --json"]),
    ],
)
def test_of_a_deep_stack_the_rest_is_counted(
    tmp_path: Path, run: Runner, depth: int, more: list[str]
) -> None:
    recorded = Recorded([(tuple(CODE + 0x10 * i for i in range(1, depth + 1)), 1, 0, 24)])
    saved = tmp_path / "deep.rsc"
    saved.write_bytes(Stream(leaks=[Leak(24)], names={}, extra=recorded.encoded()).encoded())
    lines = [line.strip() for line in run("report", str(saved)).out.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("allocated by")) + 1
    assert all("+0x" in line for line in lines[begin : begin + SHOWN])
    assert not any("+0x" in line for line in lines[begin + SHOWN :])
    assert [line for line in lines if "more caller" in line] == more


@pytest.mark.parametrize(
    ("sample", "said"),
    [(0, ""), (1, ", one for each 1 byte:"), (512, ", one for each 512 bytes:")],
)
def test_what_is_sampled_is_said(tmp_path: Path, run: Runner, sample: int, said: str) -> None:
    recorded = Recorded([((CODE + 0x10,), 1, 0, 24)], header={"sample": sample})
    saved = tmp_path / "sampled.rsc"
    saved.write_bytes(Stream(leaks=[Leak(24)], names={}, extra=recorded.encoded()).encoded())
    out = " ".join(run("report", str(saved)).out.split())
    assert said in out and ("one for each" in out) == bool(said)
