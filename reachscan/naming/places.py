"""Names the place of a word that keeps a block: a variable, stack, register or mapping."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from reachscan.naming import tls
from reachscan.naming.memory_map import AddressSpace
from reachscan.recording import model
from reachscan.recording.architectures import ARCHITECTURES

MAIN_ARENA = 0


@dataclass(frozen=True)
class Place:
    """The place of a word.

    Attributes:
        kind: "stack", "thread", "register", "kernel", "module", "mapping", "block" or "nowhere".
        text: a description for people.
    """

    kind: str
    text: str


class Places:
    """Names places in the memory of a recording."""

    def __init__(self, recording: model.Recording, space: AddressSpace) -> None:
        self._recording = recording
        self._architecture = ARCHITECTURES[recording.machine]
        self._names = recording.names or {}
        self._space = space
        self._threads = {thread.tid: thread for thread in recording.threads}

    def of_reference(self, reference: model.Reference) -> Place:
        """Return the place of a reference's word."""
        if reference.holder == model.ROOT_WORD:
            return self._of_word(reference.index)
        if reference.holder == model.ROOT_MEMORY:
            return self.of_address(reference.slot)
        return Place("block", f"block {reference.block:#x}, {reference.size} bytes")

    def of_address(self, address: int) -> Place:
        """Return the place of an address outside of all blocks."""
        mapping = self._mapping_at(address)
        if mapping is None:
            return Place("nowhere", "no mapping")
        return (
            self._in_thread(address, mapping)
            or self._in_module(address)
            or Place("mapping", f"{_mapping_text(mapping)}, {address - mapping.start:#x} into it")
        )

    def arena_of(self, block: model.Block) -> str:
        """Return which part of the allocator a block came from."""
        regions = self._recording.regions
        inside = (regions.start <= np.uint64(block.start)) & (np.uint64(block.start) < regions.end)
        if (regions.kind[inside] == model.MAPPED).any():
            return "a mapping of its own"
        if (regions.kind[inside] == model.PROGRAM_POOL).any():
            return "a pool of the program's own"
        return "the main arena" if block.arena == MAIN_ARENA else f"arena {block.arena}"

    def mapping_of(self, address: int) -> str:
        """Return the mapping that holds an address, with its bounds."""
        mapping = self._mapping_at(address)
        return "no mapping" if mapping is None else _mapping_text(mapping)

    def _mapping_at(self, address: int) -> model.Mapping | None:
        index = int(self._space.mapping_at(np.array([address], np.uint64))[0])
        return self._recording.mappings[index] if index >= 0 else None

    def _of_word(self, index: int) -> Place:
        for owner in self._recording.word_owners:
            position = index - owner.first
            if not 0 <= position < owner.count:
                continue
            if not owner.tid:
                return Place("kernel", "the kernel (an epoll event, a timer or a pending signal)")
            return Place(
                "register",
                f"{self._architecture.register(position)} of {self._thread_text(owner.tid)}",
            )
        return Place("register", "a register")

    def _thread_text(self, tid: int) -> str:
        thread = self._threads.get(tid)
        return f"thread {tid} '{thread.name}'" if thread else f"thread {tid}"

    def _in_thread(self, address: int, mapping: model.Mapping) -> Place | None:
        """Return the place in memory of one thread: its stack, descriptor or variables."""
        for thread in self._threads.values():
            into = address - thread.thread_pointer
            whose = self._thread_text(thread.tid)
            descriptor = self._architecture.descriptor
            if into in descriptor:
                where = f"{into:#x} into it" if into >= 0 else f"{-into:#x} before its end"
                return Place("thread", f"descriptor of {whose}, {where}")
            if abs(into) <= tls.LARGEST and self._is_thread_local(address, abs(into)):
                return Place("thread", f"{self._variable(address)} of {whose}")
        thread_here = self._stack_owner(address, mapping)
        if thread_here is None:
            return self._on_exited_stack(address, mapping)
        above = address - thread_here.stack_pointer
        side = "above" if above >= 0 else "below"
        whose = self._thread_text(thread_here.tid)
        return Place("stack", f"stack of {whose}, {abs(above):#x} {side} its stack pointer")

    def _on_exited_stack(self, address: int, mapping: model.Mapping) -> Place | None:
        """Return the place on the stack of a thread that currently runs on another stack."""
        # The main thread's descriptor is not on its stack.
        above = [
            thread
            for thread in self._threads.values()
            if thread.tid != self._recording.target.pid
            and address < thread.thread_pointer < mapping.end
            and mapping.start <= thread.thread_pointer
        ]
        if not above or mapping.path:
            return None
        thread = min(above, key=lambda thread: thread.thread_pointer)
        if mapping.start <= thread.stack_pointer < mapping.end:
            return None
        below = thread.thread_pointer - address
        whose = self._thread_text(thread.tid)
        return Place("stack", f"first stack of {whose}, {below:#x} below its thread pointer")

    def _is_thread_local(self, address: int, distance: int) -> bool:
        name = self._names.get(address)
        if name is None or self._space.module_of_address(address) is not None:
            return False
        return bool(name.module) or name.offset == distance

    def _variable(self, address: int) -> str:
        name = self._names[address]
        if not name.module:
            side = "above" if self._architecture.tls_above else "below"
            return f"{name.symbol}, {name.offset:#x} {side} the thread pointer,"
        return f"thread-local variable {_symbol(name)}"

    def _stack_owner(self, address: int, mapping: model.Mapping) -> model.Thread | None:
        """Return the thread that runs on a stack; stacks without guards may share a mapping."""
        running = [
            thread
            for thread in self._threads.values()
            if mapping.start <= thread.stack_pointer < mapping.end
            and thread.stack_pointer - self._architecture.red_zone <= address
        ]
        return max(running, key=lambda thread: thread.stack_pointer, default=None)

    def _in_module(self, address: int) -> Place | None:
        module = self._space.module_of_address(address)
        if module is None:
            return None
        mapping = self._mapping_at(address)
        use = _use(mapping) if mapping else "hole"
        name = self._names.get(address)
        base = self._space.bases[module]
        where = _symbol(name) if name else f"{_file_name(module)}+{address - base:#x}"
        return Place("module", f"{where} ({use})")


def _use(mapping: model.Mapping) -> str:
    if mapping.permissions & model.WRITE:
        return "variable"
    return "code" if mapping.permissions & model.EXECUTE else "constant"


def _mapping_text(mapping: model.Mapping) -> str:
    shared = "shared " if mapping.permissions & model.SHARED else ""
    what = mapping.path or f"{shared}anonymous memory"
    if shared and mapping.path:
        what = f"shared mapping of {mapping.path}"
    return f"{what} {mapping.start:#x}-{mapping.end:#x}"


def _symbol(name: model.Name) -> str:
    return f"{_file_name(name.module)}+{name.symbol}{f'+{name.offset:#x}' if name.offset else ''}"


def _file_name(path: str) -> str:
    return PurePosixPath(path).name
