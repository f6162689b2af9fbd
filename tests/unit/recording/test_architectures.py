"""What is known of processors agrees with the native programs and with the C library."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from reachscan.recording.architectures import ARCHITECTURES

NATIVE = Path(__file__).resolve().parents[3] / "native"

SOURCE = """
#include <sys/user.h>
#include <cstddef>
#include <cstdio>
#include "arch/processor.hpp"
namespace arch = reachscan::arch;
int main() {
  std::printf("{\\"machine\\": %u, \\"bits\\": %u, \\"red_zone\\": %u, \\"words\\": %u",
              unsigned{arch::kElfMachine}, arch::kAddressBits, unsigned{arch::kRedZone},
              unsigned(sizeof(arch::Registers) / 8));
  OFFSETS
  std::puts("}");
}
"""
OFFSET = 'std::printf(", \\"{0}\\": %u", unsigned(offsetof(arch::Registers, {0}) / 8));'


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the words are named for x86_64 only")
def test_the_native_programs_say_the_same(tmp_path: Path) -> None:
    (known,) = (a for a in ARCHITECTURES.values() if a.name == platform.machine())
    (tmp_path / "arch").symlink_to(NATIVE / "arch" / known.name)
    offsets = "".join(OFFSET.format(name) for name in known.registers)
    program, source = tmp_path / "dump", tmp_path / "dump.cpp"
    source.write_text(SOURCE.replace("OFFSETS", offsets))
    compiler = os.environ.get("CXX", "g++").split()
    command = [*compiler, "-std=c++20", f"-I{NATIVE}", f"-I{tmp_path}", str(source)]
    subprocess.run([*command, "-o", str(program)], check=True)
    said = json.loads(subprocess.run([str(program)], check=True, capture_output=True).stdout)
    assert ARCHITECTURES[said.pop("machine")] == known
    assert (said.pop("bits"), said.pop("red_zone")) == (known.address_bits, known.red_zone)
    assert said.pop("words") == len(known.registers)
    assert said == {name: position for position, name in enumerate(known.registers)}
