"""Facts about each processor that reports need.

To add one, add it to `ARCHITECTURES`; native/arch/processor.hpp says what the native programs need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

X86_64 = 62
"""EM_X86_64: `e_machine` of ELF files for this processor."""

AARCH64 = 183
"""EM_AARCH64."""

I386 = 3
"""EM_386: a 32-bit program of x86_64."""

ARM = 40
"""EM_ARM: a program of armv7, or a 32-bit one of aarch64."""

_X87, _XMM, _XMM_END, _YMM, _YMM_END = 32, 160, 416, 576, 832
"""Byte ranges of an XSAVE area in standard format (Intel SDM vol. 1, 13.4)."""

_VECTORS = 32
"""Registers v0 to v31 of 16 bytes each come first in aarch64's floating-point state."""


class Architecture(NamedTuple):
    """One processor.

    Attributes:
        name: that of its helper, nearly as `uname -m` says.
        word: bytes of a word, and of an address.
        address_bits: maximum width of an address in user space.
        red_zone: a leaf function may keep data this many bytes below its stack pointer.
        descriptor: bytes of glibc's thread descriptor (struct pthread), seen from the thread
            pointer. If its size differs by release, those that all of them have.
        tls_above: whether thread-local variables lie above the thread pointer (variant I of U.
            Drepper, "ELF Handling For Thread-Local Storage"), not below (variant II).
        registers: of a thread, as the kernel hands them out: eight bytes each, in order.
        vector_register: names the register at a byte offset into the words that follow.
    """

    name: str
    word: int
    address_bits: int
    red_zone: int
    descriptor: range
    tls_above: bool
    registers: tuple[str, ...]
    vector_register: Callable[[int], str]

    def register(self, position: int) -> str:
        """Return the name of the register at this position among a thread's words."""
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


def _of_vector_registers(byte: int) -> str:
    number = byte // 16
    # Longer in threads with scalable vectors, whose length is not in the stream.
    return f"register v{number}" if number < _VECTORS else "a vector register"


def _of_short_vector_registers(byte: int) -> str:
    return f"register d{byte // 8}"


ARCHITECTURES = {
    X86_64: Architecture(
        name="x86_64",
        word=8,
        address_bits=47,
        red_zone=128,
        descriptor=range(0x900),
        tls_above=False,
        # struct user_regs_struct of <sys/user.h>
        registers=(
            *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx"),
            *("rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp", "ss"),
            *("fs_base", "gs_base", "ds", "es", "fs", "gs"),
        ),
        vector_register=_of_xsave_area,
    ),
    AARCH64: Architecture(
        name="aarch64",
        word=8,
        address_bits=48,
        red_zone=0,
        descriptor=range(-0x700, 0),
        tls_above=True,
        # Registers of native/arch/aarch64/registers.hpp: the first ones as the kernel has them
        registers=(
            *(f"x{number}" for number in range(31)),
            *("sp", "pc", "pstate", "tpidr_el0"),
            *("system_call", "at_system_call", "behind_system_call", "short_words"),
        ),
        vector_register=_of_vector_registers,
    ),
    I386: Architecture(
        name="i386",
        word=4,
        address_bits=32,
        red_zone=0,
        descriptor=range(0x480),
        tls_above=False,
        # As a 64-bit tracer gets them: x86_64's, half of each used
        registers=(
            *("r15", "r14", "r13", "r12", "ebp", "ebx", "r11", "r10", "r9", "r8", "eax", "ecx"),
            *("edx", "esi", "edi", "orig_eax", "eip", "cs", "eflags", "esp", "ss"),
            *("fs_base", "gs_base", "ds", "es", "fs", "gs"),
        ),
        vector_register=_of_xsave_area,
    ),
    ARM: Architecture(
        name="armv7",
        word=4,
        address_bits=32,
        red_zone=0,
        descriptor=range(-0x480, 0),
        tls_above=True,
        # In the places of aarch64's. Unused ones are zero.
        registers=(
            *(f"r{number}" for number in range(13)),
            *("unused", "lr", *("unused",) * 16, "sp", "pc", "cpsr", "tpidruro"),
            *("system_call", "at_system_call", "behind_system_call", "short_words"),
        ),
        vector_register=_of_short_vector_registers,
    ),
}
"""By `e_machine` of ELF files."""

ALSO_RUNS = {X86_64: I386, AARCH64: ARM}
"""Processors whose programs another one runs, too; its helper handles them."""

ADDRESS_END = max(1 << architecture.address_bits for architecture in ARCHITECTURES.values())
"""No process has memory at or above this address."""
