"""Names the frames of stacks: from return address to module, function, file and line."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np
from elftools.elf.elffile import ELFFile

from reachscan.naming import confined, debug_files, elf_files, source_lines, symbols
from reachscan.naming.dwarf import size_of_debug_information
from reachscan.naming.memory_map import AddressSpace
from reachscan.naming.module_files import ModuleFiles
from reachscan.naming.owners import plain_path
from reachscan.naming.source_lines import Place
from reachscan.recording import model
from reachscan.recording.origins import PYTHON, Call, Frame, Frames, call_before
from reachscan.recording.zip_equal import zip_equal

MODULE_SECONDS = 6.0
"""Maximum seconds to search for the lines of one module."""

SECONDS = 20.0
"""Maximum seconds to search for all lines."""

UNKNOWN_PYTHON = "a Python function"
"""Name of a Python function that the recorder had no room for."""


def without_lines(
    recording: model.Recording, space: AddressSpace, names: Mapping[int, model.Name]
) -> dict[Call, tuple[Frame, ...]]:
    """Return the frames of all calls in a recording's stacks, from the names of addresses."""
    calls = recording.stacks.all_calls() if recording.stacks else []
    found: dict[Call, tuple[Frame, ...]] = {c: (_of_closed(recording, c),) for c in calls}
    found |= {c: (_of_python(recording, c),) for c in calls if c.is_python}
    ascending = sorted(c for c in found if not c.module and not c.is_python)
    build_ids = {plain_path(m.path): m.build_id.hex() for m in reversed(recording.modules)}
    before = np.array([call_before(call.pc) for call in ascending], np.uint64)
    for call, mapping in zip_equal(ascending, space.mapping_at(before).tolist()):
        module = int(space.module_of[mapping])
        if module < 0:
            continue
        path, name = space.modules[module], names.get(call_before(call.pc))
        found[call] = (
            Frame(
                call.pc,
                path,
                build_ids.get(path) or None,
                call.pc + space.file_offset(mapping),
                name.symbol if name else None,
                name.offset + 1 if name else None,
            ),
        )
    return found


def _of_closed(recording: model.Recording, call: Call) -> Frame:
    """Return the frame of a call in a closed library: only the name of the file is known."""
    module = recording.closed_modules.get(call.module)
    if not call.module or module is None:
        return Frame(call.pc)
    return Frame(call.pc, module.path, module.build_id.hex() or None, call.pc - module.bias)


def _of_python(recording: model.Recording, call: Call) -> Frame:
    function = recording.python_functions.get((call.pc ^ PYTHON) >> 32)
    line = call.pc & 0xFFFFFFFF
    if function is None:
        return Frame(0, function=UNKNOWN_PYTHON, line=line)
    return Frame(0, function=function.name, file=function.file, line=line)


def with_lines(files: ModuleFiles, plain: Frames) -> Frames:
    """Return the frames with file, line and inlined functions, where DWARF has them.

    Args:
        files: the files of the modules.
        plain: the part of `without_lines`'s result to complete.
    """
    by_module = defaultdict(list)
    for call, (frame, *_) in plain.items():
        if not call.module and frame.module and frame.module.startswith("/"):
            by_module[frame.module].append(call.pc)

    def read(path: str) -> list[tuple[int, list[Place]]]:
        return _places(files, path, by_module[path])

    files.provide(by_module)
    found = dict(plain)
    for _, answer in confined.each(list(by_module), read, SECONDS):
        # Without lines, or without a file, the symbols must do.
        for pc, places in [] if isinstance(answer, confined.Failed) else answer:
            call = Call(pc, 0)
            found[call] = tuple(_joined(plain[call][0], [Place(*place) for place in places]))
    return found


def _places(files: ModuleFiles, path: str, pcs: Sequence[int]) -> list[tuple[int, list[Place]]]:
    deadline = time.monotonic() + MODULE_SECONDS
    calls = np.array([call_before(pc) for pc in pcs], np.uint64)
    at = files.space.mapping_at(calls)
    with ExitStack() as stack:
        elf, debug = stack.enter_context(files.opened_with_debug_file(path))
        with_lines = next((e for e in (debug, elf) if e and size_of_debug_information(e)), None)
        if with_lines is None:
            return []
        shared: ELFFile | None = stack.enter_context(
            debug_files.supplement(with_lines, path, files.roots)
        )
        loads = elf_files.loads(elf)
        values: dict[int, int] = {}
        for mapping in np.unique(at):
            here = np.flatnonzero(at == mapping)
            offset = files.space.file_offset(int(mapping))
            found = symbols.values_of(calls[here], offset, loads).tolist()
            values |= {pcs[i]: value for i, value in zip_equal(here.tolist(), found)}
        lines = source_lines.places(with_lines, shared, sorted({*values.values()}), deadline)
    return [(pc, lines[value]) for pc, value in values.items() if value in lines]


def _joined(frame: Frame, places: Sequence[Place]) -> Iterator[Frame]:
    """Yield the frames of one call: those of inlined functions, then the function's own.

    The symbol names the latter: it is the linkage name, and debug information may know less.
    """
    for place in places:
        if place.inlined:
            inlined = frame._replace(function=place.function, function_offset=None, inlined=True)
            yield inlined._replace(file=place.file, line=place.line)
        else:
            name = frame.function or place.function
            yield frame._replace(function=name, file=place.file, line=place.line)
