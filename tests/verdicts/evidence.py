"""Finds pointers in a process without any of reachscan: reads its memory, registers and /proc."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from reachscan.recording.zip_equal import zip_equal

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, PTRACE_GETREGSET = 0x4206, 0x4207, 17, 0x4204
NT_PRSTATUS, NT_X86_XSTATE = 1, 0x202
WALL = 0x40000000
STACK_POINTER, THREAD_POINTER = 19, 21  # indices in struct user_regs_struct
RED_ZONE = 128
PAGE = 4096
PIECE = 64 << 20
# In the page map of the kernel (Documentation/admin-guide/mm/pagemap.rst).
PRESENT_OR_SWAPPED, GUARD = np.uint64(3 << 62), np.uint64(1 << 58)
OF_FILE = np.uint64(1 << 61)

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Mapping:
    """One line of /proc/PID/maps."""

    start: int
    end: int
    perms: str
    path: str


@dataclass(frozen=True)
class Hit:
    """A word of memory that points into a block."""

    address: int
    offset: int


@dataclass
class Evidence:
    """Where pointers into some blocks are; every list is per block, in the order asked for."""

    memory: list[list[Hit]]
    registers: list[int]
    mappings: list[Mapping]
    stack_pointers: list[int] = field(default_factory=list)
    thread_pointers: list[int] = field(default_factory=list)
    ended_stacks: list[tuple[int, int]] = field(default_factory=list)
    """From where to where: kept by the C library for threads to come."""
    guards: list[int] = field(default_factory=list)
    """Inaccessible pages within mappings; a stack does not go on below its guard."""

    def mapping_of(self, address: int) -> Mapping | None:
        return next((m for m in self.mappings if m.start <= address < m.end), None)

    def note_thread(self, words: Words) -> None:
        """Take down from its registers where its stack is."""
        self.stack_pointers.append(int(words[STACK_POINTER]))
        self.thread_pointers.append(int(words[THREAD_POINTER]))

    def is_dead(self, address: int) -> bool:
        """Whether it lies on the stack of an ended thread, or below a thread's stack pointer."""
        if any(start <= address < end for start, end in self.ended_stacks):
            return True
        mapping = self.mapping_of(address)
        if mapping is None or mapping.path == "[heap]":  # a stack there is only part of it
            return False
        return any(
            mapping.start <= address < pointer - RED_ZONE
            and pointer < mapping.end
            and not any(address < guard < pointer for guard in self.guards)
            for pointer in self.stack_pointers
        )


def mappings_of(pid: int) -> list[Mapping]:
    mappings = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        start, end = (int(part, 16) for part in words[0].split("-"))
        mappings.append(Mapping(start, end, words[1], words[5] if len(words) > 5 else ""))
    return mappings


def look_for(pid: int, blocks: Sequence[tuple[int, int]]) -> Evidence:
    """Return every word of memory and every register that points into one of the blocks.

    Words are aligned, but for those in generated code. Blocks are address and size, ascending. The
    process is stopped meanwhile. All of its memory is read that holds anything, whatever its
    protection, but the kernel's own. Raises ValueError if the addresses do not ascend.
    """
    starts, sizes = np.array(blocks, dtype=np.uint64).reshape(-1, 2).T
    if not np.all(starts[:-1] < starts[1:]):
        raise ValueError("the addresses of the blocks do not ascend")
    found = Evidence([[] for _ in blocks], [0] * len(blocks), mappings_of(pid))
    with stopped(pid) as threads:
        for tid in threads:
            words = registers(tid)
            found.note_thread(words)
            for _, block, _ in _matches(words, starts, sizes):
                found.registers[block] += 1
        found.ended_stacks = ended_stacks(pid, found)
        for address, words in written_memory(pid, found):
            for index, block, offset in _matches(words, starts, sizes):
                found.memory[block].append(Hit(address + 8 * index, offset))
    return found


def held_by_kernel(pid: int) -> set[int]:
    """Return what /proc shows of the data of epoll registrations and timers."""
    values = set()
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            text = info.read_text()
        except FileNotFoundError:  # it was closed just now
            continue
        values |= {int(word, 16) for word in re.findall(r"data:\s*([0-9a-f]+)", text)}
    timers = Path(f"/proc/{pid}/timers").read_text()
    return values | {int(word, 16) for word in re.findall(r"signal: \d+/([0-9a-f]+)", timers)}


def _matches(words: Words, starts: Words, sizes: Words) -> Iterator[tuple[int, int, int]]:
    at = np.searchsorted(starts, words, side="right")
    candidates = np.flatnonzero(at)
    owners = at[candidates] - 1
    offsets = words[candidates] - starts[owners]
    inside = offsets < sizes[owners]
    columns = (candidates[inside], owners[inside], offsets[inside])
    yield from zip_equal(*(column.tolist() for column in columns))


def ended_stacks(pid: int, found: Evidence) -> list[tuple[int, int]]:
    """Return stacks that belong to no thread any more, each up to the descriptor of the last one.

    A stack is behind an inaccessible mapping, its guard. A descriptor, at the top, points to itself
    twice (tcb and self); that of a thread that runs is in its register.
    """
    pairs = zip(found.mappings, found.mappings[1:])
    stacks = [
        m
        for guard, m in pairs
        if guard.perms.startswith("---") and guard.end == m.start and not m.path and "w" in m.perms
        if not any(m.start <= pointer < m.end for pointer in found.stack_pointers)
    ]
    ended = []
    for m in stacks:
        for address, words in written_memory(pid, found, [m]):
            at = np.uint64(address) + np.uint64(8) * np.arange(len(words) - 2, dtype=np.uint64)
            tops = at[(words[:-2] == at) & (words[2:] == at)].tolist()
            ended += [(m.start, top) for top in tops if top not in found.thread_pointers]
    return ended


def written_memory(
    pid: int, found: Evidence, mappings: Sequence[Mapping] | None = None
) -> Iterator[tuple[int, Words]]:
    # /proc/PID/mem reads pages of any protection; the page map says which have pages at all.
    folder = Path(f"/proc/{pid}")
    started = psutil.Process(pid).create_time()
    with (folder / "mem").open("rb", 0) as memory, (folder / "pagemap").open("rb", 0) as page_map:
        for m in found.mappings if mappings is None else mappings:
            if m.path.startswith("[v") or _shows_older_file(m, started):
                continue
            bits = _page_bits(page_map.fileno(), m)
            guards = np.flatnonzero(bits & GUARD)
            found.guards += [m.start + PAGE * int(page) for page in guards]
            for start, end in _present(bits, m):
                for piece in range(start, end, PIECE):
                    try:
                        data = os.pread(memory.fileno(), min(PIECE, end - piece), piece)
                    except OSError:
                        continue
                    # Instructions hold addresses at any byte.
                    for odd in range(8) if "x" in m.perms and not m.path else (0,):
                        whole = (len(data) - odd) & ~7
                        yield piece + odd, np.frombuffer(data[odd : odd + whole], dtype=np.uint64)


def _shows_older_file(m: Mapping, started: float) -> bool:
    """Return whether it shares, to read only, a file that is older than the process.

    No number in such a file is an address of this process.
    """
    if not m.path.startswith("/") or "w" in m.perms or not m.perms.endswith("s"):
        return False
    try:
        return Path(m.path).stat().st_mtime < started
    except OSError:  # deleted, or never had a name
        return False


def _page_bits(page_map: int, m: Mapping) -> Words:
    count = (m.end - m.start) // PAGE
    return np.frombuffer(os.pread(page_map, 8 * count, m.start // PAGE * 8), dtype=np.uint64)


def _present(bits: Words, m: Mapping) -> list[tuple[int, int]]:
    there = (bits & PRESENT_OR_SWAPPED) != 0
    if m.path.startswith("/") and m.perms.endswith("p") and "w" not in m.perms:
        # Of instructions and constants, only pages that were written can hold addresses of blocks.
        # Where the heap is below 4 GiB, many numbers in the others look like that.
        there &= (bits & OF_FILE) == 0
    edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(np.int8), [0]])))
    return [
        (m.start + PAGE * int(first), m.start + PAGE * int(last))
        for first, last in edges.reshape(-1, 2)
    ]


@contextmanager
def stopped(pid: int) -> Iterator[list[int]]:
    tids = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    seized: list[int] = []
    try:
        for tid in tids:
            _ptrace(PTRACE_SEIZE, tid)
            seized.append(tid)
            _ptrace(PTRACE_INTERRUPT, tid)
            os.waitpid(tid, WALL)
        yield tids
    finally:
        for tid in seized:
            _ptrace(PTRACE_DETACH, tid)


class _Buffer(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def registers(tid: int) -> Words:
    """Return the general ones of a stopped thread, then the vector registers."""
    return np.concatenate([_registers(tid, NT_PRSTATUS), _registers(tid, NT_X86_XSTATE)])


def _registers(tid: int, kind: int) -> Words:
    room = ctypes.create_string_buffer(1 << 14)
    buffer = _Buffer(ctypes.addressof(room), len(room))
    _ptrace(PTRACE_GETREGSET, tid, kind, ctypes.byref(buffer))
    return np.frombuffer(room.raw[: buffer.length & ~7], dtype=np.uint64)


_libc = ctypes.CDLL(None, use_errno=True)


def _ptrace(request: int, tid: int, address: int = 0, data: object = None) -> None:
    if _libc.ptrace(request, tid, ctypes.c_void_p(address), data) != 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request} of thread {tid}")
