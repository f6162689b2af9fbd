"""Makes helpers whose sweeper does what no sweeper should, as if its memory had been written to."""

from __future__ import annotations

import gzip
import platform
import struct
import subprocess
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from scans import HELPER
from victims import REPOSITORY

NATIVE = REPOSITORY / "native"
BUILT = REPOSITORY / "build" / "native"
"""Where `make build` lets "arch" mean the folder of this processor."""
FLAGS = (
    "-std=c++20", "-O2", "-ffreestanding", "-fno-exceptions", "-fno-rtti", "-fPIE",
    "-fvisibility=hidden", "-fno-stack-protector", "-fno-asynchronous-unwind-tables",
    "-fno-threadsafe-statics", "-fcf-protection=none", "-U_FORTIFY_SOURCE",
)  # fmt: skip


def make(folder: Path, misdeed: str) -> Path:
    """Return a helper that runs a function of fixtures/hostile_sweeper.cpp in the clone."""
    blob = gzip.compress(_blob(folder, misdeed))
    image = bytearray(HELPER.read_bytes())
    with HELPER.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        at = next(elf.address_offsets(_address(table, "reachscan_sweepers")))
        start, end = struct.unpack_from("<2Q", image, at)
        at = next(elf.address_offsets(start))
    assert len(blob) <= end - start
    image[at : at + len(blob)] = blob
    helper = folder / "helper"
    helper.write_bytes(image)
    helper.chmod(0o755)
    return helper


def _address(table: SymbolTableSection, name: str) -> int:
    symbols = table.get_symbol_by_name(name)
    assert symbols, f"the helper has no symbol {name}"
    value: int = symbols[0]["st_value"]
    return value


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
