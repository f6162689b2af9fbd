"""What is known of processors agrees with the native programs and with the C library."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from reachscan.recording.architectures import (
    AARCH64,
    ALSO_RUNS,
    ARCHITECTURES,
    ARM,
    I386,
    X86_64,
)

NATIVE = Path(__file__).resolve().parents[3] / "native"

FIRST_LINES = """
#include <sys/user.h>
#include <cstddef>
#include "arch/processor.hpp"
#include "arch/code.hpp"
#include "arch/instructions.hpp"
#include "arch/mangling.hpp"
#include "arch/scratch_registers.hpp"
#include "arch/signal_frame.hpp"
#include "arch/system_calls.hpp"
#include "arch/thread_descriptor.hpp"
#include "arch/thread_local.hpp"
#include "arch/trampoline.hpp"
namespace arch = reachscan::arch;
"""

MEMBERS = {
    X86_64: {},
    AARCH64: {f"x{number}": f"x[{number}]" for number in range(31)}
    | {"tpidr_el0": "thread_pointer"},
    I386: {
        f"{before}e{which}": f"{before}r{which}"
        for before in ("", "orig_")
        for which in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "ip")
    },
    ARM: {f"r{number}": f"x[{number}]" for number in range(13)}
    | {"lr": "x[arch::kShortLinkRegister]", "cpsr": "pstate", "tpidruro": "thread_pointer"},
}
"""How registers are called in the native programs, where not by their names."""


def compiler_for(machine: str) -> list[str]:
    if machine == platform.machine():
        return os.environ.get("CXX", "g++").split()
    cross = f"{machine}-linux-gnu-g++"
    if shutil.which(cross) is None:
        pytest.skip(f"{cross} is not installed (Debian package g++-{machine}-linux-gnu)")
    return [cross]


@pytest.mark.parametrize("machine", ARCHITECTURES, ids=[a.name for a in ARCHITECTURES.values()])
def test_the_native_programs_say_the_same(machine: int, tmp_path: Path) -> None:
    known = ARCHITECTURES[machine]
    runner = next((own for own, other in ALSO_RUNS.items() if other == machine), machine)
    name = ARCHITECTURES[runner].name
    (tmp_path / "arch").symlink_to(NATIVE / "arch" / name)
    (tmp_path / "family").mkdir()
    (tmp_path / "family" / "arch").symlink_to(NATIVE / "arch" / "arm")
    facts = {
        "arch::kElfMachine" if runner == machine else "arch::kShortElfMachine": machine,
        "arch::kWord": known.word,
        "arch::kRedZone": known.red_zone,
        "sizeof(arch::Registers)": 8 * len(known.registers),
    }
    if runner == machine:
        facts["arch::kAddressBits"] = known.address_bits
    if runner == X86_64:  # elsewhere the native programs find out
        facts["arch::kDescriptorBytes"] = len(known.descriptor)
    for position, register in enumerate(known.registers):
        if register == "unused":
            continue
        member = MEMBERS[machine].get(register, register)
        facts[f"offsetof(arch::Registers, {member})"] = 8 * position
    asserted = (f"static_assert({what} == {value});" for what, value in facts.items())
    source = tmp_path / "facts.cpp"
    source.write_text(FIRST_LINES + "\n".join(asserted))
    short = ["-DREACHSCAN_SHORT_WORDS"] if known.word == 4 else []
    options = [*short, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command = [
        *compiler_for(name),
        *options,
        f"-I{NATIVE}",
        f"-I{tmp_path}",
        f"-I{tmp_path}/family",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
