"""Makes small shared libraries, and changes them into ones that are a burden to read."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

SYMBOL = "harmless"
TEXT_SIZE = 0x1000

_SOURCE = """
        .text
        .balign 4096
        .globl {0}
        .type {0}, @function
{0}: .fill 4000, 1, 0xc3
        .size {0}, 4000
"""

STRUCT_SIZE = 32
"""Of the struct without end."""

_ENDLESS_TYPE = """
        .section .debug_abbrev, "", @progbits
        .byte 1, 0x11, 1, 0, 0                              # compile unit
        .byte 2, 0x13, 1, 0x03, 0x08, 0x0b, 0x0b, 0, 0      # struct: name, size
        .byte 3, 0x0d, 1, 0x01, 0x13, 0, 0                  # member: sibling, with children
        .byte 0
        .section .debug_info, "", @progbits
unit:   .long end - start
start:  .value 4
        .long 0
        .byte 8
        .byte 1
        .byte 2
        .string "endless"
        .byte 32
member: .byte 3
        .long member - unit
        .byte 0, 0, 0
end:
"""

_SECTIONS_AT, _SECTION_COUNT_AT = 0x28, 0x3C
_SEGMENTS = 64
_SEGMENT = struct.Struct("<IIQ40x")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_OFFSET_AT, _SIZE_AT = 24, 32
_SYMBOL_TABLES = (2, 11)
_SYMBOL_SIZE = 24


def library(path: Path, *, symbol: str = SYMBOL, endless_type: bool = False) -> Path:
    """Make a library with one function, and perhaps a struct whose members have no end."""
    source = path.with_suffix(".s")
    source.write_text(_SOURCE.format(symbol) + (_ENDLESS_TYPE if endless_type else ""))
    # No other code, so that the function comes first.
    flags = ["-shared", "-nostdlib", "-Wl,--build-id", "-Wl,-z,separate-code"]
    subprocess.run(["gcc", *flags, "-o", path, source], check=True)
    source.unlink()
    return path


def text_offset(path: Path) -> int:
    """Return where the function is in the file; it has a page to itself."""
    with path.open("rb") as file:
        raw = file.read(1 << 12)
    segments = (_SEGMENT.unpack_from(raw, _SEGMENTS + i * _SEGMENT.size) for i in range(4))
    return next(int(offset) for kind, flags, offset in segments if kind == 1 and flags & 1)


def strip(path: Path, debug_file: str) -> None:
    """Leave only the symbols that programs are linked by, and the name of a file with the rest."""
    beside = path.with_name(debug_file)
    beside.write_bytes(b"")
    link = f"--add-gnu-debuglink={beside}"
    subprocess.run(["objcopy", "--strip-all", link, path], check=True)
    beside.unlink()


def give_endless_sections(path: Path) -> None:
    """Let the section table go on for 2^27 entries, all in a hole of the file."""
    count = 1 << 27
    with path.open("r+b") as file:
        table = file.seek(0, os.SEEK_END)
        file.truncate(table + count * _SECTION.size)
        # Where there are so many, the first one says how many.
        file.seek(table + _SIZE_AT)
        file.write(struct.pack("<Q", count))
        file.seek(_SECTIONS_AT)
        file.write(struct.pack("<Q", table))
        file.seek(_SECTION_COUNT_AT)
        file.write(struct.pack("<H", 0))


def give_huge_symbol_tables(path: Path) -> None:
    """Let the symbols go on for 3 GiB, in a hole of the file."""
    with path.open("r+b") as file:
        raw = file.read()
        hole, size = len(raw), _SYMBOL_SIZE << 27
        (table,) = struct.unpack_from("<Q", raw, _SECTIONS_AT)
        (count,) = struct.unpack_from("<H", raw, _SECTION_COUNT_AT)
        for at in range(table, table + count * _SECTION.size, _SECTION.size):
            if _SECTION.unpack_from(raw, at)[1] in _SYMBOL_TABLES:
                file.seek(at + _OFFSET_AT)
                file.write(struct.pack("<QQ", hole, size))
        file.truncate(hole + size)
