"""Makes helpers whose sweeper does what no sweeper should, as if its memory had been written to."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from scans import HELPER
from victims import REPOSITORY

NATIVE = REPOSITORY / "native"
BUILT = REPOSITORY / "build" / "native"
"""Where `make build` lets "arch" mean the folder of this processor."""
IMAGES = 6
"""How many the helper carries (helper/images.hpp)."""
FLAGS = (
    "-std=c++20", "-O2", "-ffreestanding", "-fno-exceptions", "-fno-rtti", "-fPIE",
    "-fvisibility=hidden", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
    "-fno-threadsafe-statics", "-fcf-protection=none", "-U_FORTIFY_SOURCE",
)  # fmt: skip


def make(folder: Path, misdeed: str) -> Path:
    """Return a helper that runs a function of fixtures/hostile_sweeper.cpp in the clone."""
    images = _packed(folder, _blob(folder, misdeed))
    program, theirs = HELPER.read_bytes(), (BUILT / "images.packed").read_bytes()
    assert program.count(theirs) == 1
    assert len(images) <= len(theirs)
    helper = folder / "helper"
    helper.write_bytes(program.replace(theirs, images + theirs[len(images) :]))
    helper.chmod(0o755)
    return helper


def _packed(folder: Path, sweeper: bytes) -> bytes:
    """Pack a sweeper in place of the first of the helper's images; the others are empty."""
    blob, packed = folder / "blob", folder / "images"
    blob.write_bytes(sweeper)
    others = [os.devnull] * (IMAGES - 1)
    pack = NATIVE / "helper" / "pack.py"
    _run(folder, sys.executable, str(pack), str(packed), str(blob), *others)
    return packed.read_bytes()


def _blob(folder: Path, misdeed: str) -> bytes:
    source = REPOSITORY / "fixtures" / "hostile_sweeper.cpp"
    entry = NATIVE / "arch" / platform.machine() / "blob_entry.S"
    for name, path in (("sweeper.o", source), ("entry.o", entry)):
        folders = [f"-I{NATIVE}", f"-I{BUILT / 'include'}"]
        command = ["g++", *FLAGS, *folders, f"-DMISDEED={misdeed}", "-c", str(path)]
        _run(folder, *command, "-o", name)
    script = ["-T", str(NATIVE / "sweeper" / "blob" / "blob.lds")]
    _run(folder, "ld", "-pie", "--no-dynamic-linker", "-z", "noexecstack", "--build-id=none",
         *script, "-o", "sweeper.elf", "sweeper.o", "entry.o")  # fmt: skip
    _run(folder, "objcopy", "-O", "binary", "-j", ".blob", "sweeper.elf", "sweeper.bin")
    return (folder / "sweeper.bin").read_bytes()


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True)
