"""What a report has to know of the processor that a target ran on.

To add one, add it to `ARCHITECTURES`; native/arch/processor.hpp says what the native programs need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

X86_64 = 62
"""EM_X86_64: `e_machine` of ELF files for this processor."""

_X87, _XMM, _XMM_END, _YMM, _YMM_END = 32, 160, 416, 576, 832
"""Byte ranges of an XSAVE area in standard format (Intel SDM vol. 1, 13.4)."""


class Architecture(NamedTuple):
    """One processor.

    Attributes:
        name: as `uname -m` says.
        address_bits: no program has an address with more.
        red_zone: a leaf function may keep data this many bytes below its stack pointer.
        registers: of a thread, as the kernel hands them out: one word each, in order.
        vector_register: what is so many bytes into the words that follow.
    """

    name: str
    address_bits: int
    red_zone: int
    registers: tuple[str, ...]
    vector_register: Callable[[int], str]

    def register(self, position: int) -> str:
        """Return what the word at this position of a thread's registers is."""
        if position < len(self.registers):
            return f"register {self.registers[position]}"
        return self.vector_register(8 * (position - len(self.registers)))


def _of_xsave_area(byte: int) -> str:
    if _X87 <= byte < _XMM:
        number = (byte - _X87) // 16
        return f"register st({number}) or mm{number}"
    if _XMM <= byte < _XMM_END:
        return f"register xmm{(byte - _XMM) // 16}"
    if _YMM <= byte < _YMM_END:
        return f"upper half of register ymm{(byte - _YMM) // 16}"
    return "a vector register"


ARCHITECTURES = {
    X86_64: Architecture(
        name="x86_64",
        address_bits=47,
        red_zone=128,
        # struct user_regs_struct of <sys/user.h>
        registers=(
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx"),
            *("rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss"),
            *("fs_base", "gs_base", "ds", "es", "fs", "gs"),
        ),
        vector_register=_of_xsave_area,
    ),
}
"""By `e_machine` of ELF files."""

ADDRESS_END = max(1 << architecture.address_bits for architecture in ARCHITECTURES.values())
"""No process has memory from there on."""
