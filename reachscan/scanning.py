"""The steps of a scan, from a process id to groups of leaks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from reachscan import errors
from reachscan.capture import helper
from reachscan.capture.options import LEAKS, Question, ScanOptions
from reachscan.capture.place import Here, Place
from reachscan.result import BlockAnswer, HeapScan, LeakScan, ScanResult

# Everything else is imported where it is needed: readers of the stream while the helper works, and
# slow modules only if there are leaks or an option needs them.
if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path
    from typing import TypeAlias

    from reachscan.capture.sysroot import Sysroot
    from reachscan.naming.private_memory import PrivateMemory
    from reachscan.recording import model, wire
    from reachscan.recording.save import StreamSaver

LARGE = 500_000
"""Blocks of a heap whose leaks take as long to collect as the libraries take to load."""

ANDROID_DUMP = b"Android Native Heap Dump v"
"""The first bytes of Android's heap dumps."""

FOLD = "fold"
"""The phase that runs in this process: naming and grouping."""

Progressed: TypeAlias = "Callable[[model.Progress], None]"
_Answer = TypeVar("_Answer", LeakScan, HeapScan, BlockAnswer)


def scan(
    process: int | str,
    options: ScanOptions | None = None,
    on_progress: Progressed | None = None,
    place: Place | None = None,
) -> LeakScan:
    """Find the leaks of a running process.

    Example:
        >>> result = reachscan.scan(pid)
        >>> result
        <LeakScan: <Recording of ...: Totals(allocations=...)>>
        >>> for group in result.groups(limit=5):
        ...     print(group.allocations, group.bytes, group.key, group.reason.name)
        1 136 shop::Cache DEFINITE
        1 24 shop::Order DEFINITE

    Args:
        process: its id, or its name if that is unique.
        options: how to scan; `question` is ignored.
        on_progress: called now and then with the progress of the scan.
        place: a place that `reached` opened for several scans; None to open it for this one.

    Raises:
        ReachscanError: the scan failed; the class says why.
    """
    return _ask(LeakScan, process, LEAKS, options, on_progress, place)


def heap(
    process: int | str,
    options: ScanOptions | None = None,
    on_progress: Progressed | None = None,
    place: Place | None = None,
) -> HeapScan:
    """List what the heap of a running process consists of, leaked or not.

    Example:
        >>> reachscan.heap(pid).groups(limit=5)
        [<Group of ... blocks, ... bytes: ...]

    Args:
        process: its id, or its name if that is unique.
        options: how to scan; `question` is ignored.
        on_progress: called now and then with the progress of the scan.
        place: a place that `reached` opened for several scans; None to open it for this one.

    Raises:
        ReachscanError: the scan failed; the class says why.
    """
    return _ask(HeapScan, process, Question("heap"), options, on_progress, place)


def explain(
    process: int | str,
    address: int,
    options: ScanOptions | None = None,
    on_progress: Progressed | None = None,
    place: Place | None = None,
) -> BlockAnswer:
    """Find what keeps the block at an address alive: see `block` and `recording.chain`.

    Example:
        >>> answer = reachscan.explain(pid, address)
        >>> answer.block.state is reachscan.BlockState.LEAKED, answer.recording.chain
        (True, ())

    Args:
        process: its id, or its name if that is unique.
        address: anywhere in the block.
        options: how to scan; `question` is ignored.
        on_progress: called now and then with the progress of the scan.
        place: a place that `reached` opened for several scans; None to open it for this one.

    Raises:
        ReachscanError: the scan failed; the class says why.
    """
    return _ask(BlockAnswer, process, Question("explain", address), options, on_progress, place)


def refs(
    process: int | str,
    address: int,
    options: ScanOptions | None = None,
    on_progress: Progressed | None = None,
    place: Place | None = None,
) -> BlockAnswer:
    """List every word that points to the block at an address: see `recording.references`.

    Example:
        >>> [word.value == address for word in reachscan.refs(pid, address).recording.references]
        []

    Args:
        process: its id, or its name if that is unique.
        address: anywhere in the block.
        options: how to scan; `question` is ignored.
        on_progress: called now and then with the progress of the scan.
        place: a place that `reached` opened for several scans; None to open it for this one.

    Raises:
        ReachscanError: the scan failed; the class says why.
    """
    return _ask(BlockAnswer, process, Question("refs", address), options, on_progress, place)


def core(
    path: str | Path, options: ScanOptions | None = None, on_progress: Progressed | None = None
) -> ScanResult:
    """Scan a core file: what had the process leaked when it was written?

    Example:
        >>> for group in reachscan.core("core.4711").groups(limit=5):
        ...     print(group.allocations, group.bytes, group.key)
        1 136 shop::Cache
        1 24 shop::Order

    Args:
        path: the file; it may be compressed.
        options: how to scan; options about stopping a process have no effect.
        on_progress: called now and then with the progress of the scan.

    Raises:
        ReachscanError: the scan failed; the class says why.
    """
    options = options or ScanOptions()
    with _keeper(options.save) as keeper:
        recording = _record_core(path, options, keeper, on_progress)
        return _finish(recording, keeper, root=options.root)


def _record_core(
    path: str | Path,
    options: ScanOptions,
    keeper: StreamSaver | None,
    on_progress: Progressed | None,
) -> model.Recording:
    from reachscan.capture import core_files

    try:
        with (
            core_files.opened(path) as descriptor,
            helper.run_with(
                options.core_arguments(f"/proc/self/fd/{descriptor}"), options, (descriptor,)
            ) as frames,
        ):
            return _decoded(frames, keeper, on_progress)
    except (errors.BadCoreError, errors.UnsupportedTargetError) as error:
        raise type(error)(f"{path}: {error.sentence}", error.next_step) from error


def load(
    path: str | Path, on_progress: Progressed | None = None, *, root: str | Path = "/"
) -> ScanResult:
    """Read a saved stream, or a native heap dump written by Android; both may be packed with gzip.

    Example:
        >>> reachscan.load("day1.rsc").counted
        Tally(allocations=..., bytes=...)

    Args:
        path: the file that `ScanOptions.save`, the helper or Android wrote.
        on_progress: called with each progress record in the file.
        root: folder that holds the mapped files, used if the stream has no names yet.

    Raises:
        OutputError: the file cannot be read.
        ReachscanError: it is not a stream, is damaged, or records a scan that failed.
    """
    from reachscan.recording import packing

    try:
        with packing.opened(path) as file:
            return load_opened(file, path, on_progress, root=root)
    except OSError as error:
        raise errors.OutputError(f"cannot read {path}: {error.strerror}") from error


def load_opened(
    file: BufferedReader,
    path: str | Path,
    on_progress: Progressed | None = None,
    *,
    root: str | Path = "/",
) -> ScanResult:
    """Read a saved stream or heap dump as `load` does, from an open file; `path` is for errors."""
    from reachscan.recording import wire
    from reachscan.recording.decode import decode

    try:
        recording = _dump(file) or decode(wire.frames(file), on_progress)
    except errors.ReachscanError as error:
        raise type(error)(f"{path}: {error.sentence}", error.next_step) from error
    return _finish(recording, None, root=root)


def _dump(file: BufferedReader) -> model.Recording | None:
    """Read Android's heap dump; return None, without consuming anything, for other files."""
    if not file.peek(len(ANDROID_DUMP)).startswith(ANDROID_DUMP):
        return None
    from reachscan.recording import android_dump

    return android_dump.read(file)


def _ask(
    expected: type[_Answer],
    process: int | str,
    question: Question,
    options: ScanOptions | None,
    on_progress: Progressed | None,
    opened: Place | None,
) -> _Answer:
    options = (options or ScanOptions())._replace(question=question)
    with nullcontext(opened) if opened else reached(options) as place:
        pid = place.resolve(str(process))
        place.check(pid)
        with _keeper(options.save) as keeper:
            recording = _record(place, pid, options, keeper, on_progress)
            answer = _finish(recording, keeper, root=place.sysroot(recording, on_progress))
    if not isinstance(answer, expected):
        raise errors.StreamError(f"the stream is damaged: it tells of {answer.subject}")
    return answer


@contextmanager
def reached(options: ScanOptions) -> Iterator[Place]:
    """Open the place that options name, and close it when the block is left.

    Raises:
        WhereError: `options.on` is not understood.
    """
    if options.on is None:
        yield Here()
        return
    from reachscan.transport.elsewhere import Elsewhere

    on, verbose = options.on, options.verbose
    place = Elsewhere(on, options.sysroot, timeout=options.timeout, verbose=verbose)
    try:
        yield place
    finally:
        place.close()


@contextmanager
def _keeper(path: str | Path | None) -> Iterator[StreamSaver | None]:
    if path is None:
        yield None
        return
    from pathlib import Path

    from reachscan.recording.save import StreamSaver

    keeper = StreamSaver(Path(path))
    try:
        yield keeper
    finally:
        keeper.discard()


def _record(
    place: Place,
    pid: int,
    options: ScanOptions,
    keeper: StreamSaver | None,
    on_progress: Progressed | None,
) -> model.Recording:
    if options.confirm > 1:
        from reachscan.capture.repeated import confirmed

        return _decoded(confirmed(place, pid, options, on_progress), keeper, None)
    if options.thorough:
        from reachscan.capture.repeated import thorough

        return _decoded(thorough(place, pid, options, on_progress), keeper, None)
    with place.scan(pid, options, on_progress) as frames:
        if options.recorded_only:
            from reachscan.recording.leak_filter import only_recorded

            frames = only_recorded(list(frames), options.known_leaks)
        return _decoded(frames, keeper, on_progress)


def _decoded(
    frames: Iterator[wire.Frame], keeper: StreamSaver | None, on_progress: Progressed | None
) -> model.Recording:
    from reachscan.recording.decode import decode

    frames = _load_in_background(frames)
    return decode(keeper.keep(frames) if keeper else frames, on_progress)


def _load_in_background(frames: Iterator[wire.Frame]) -> Iterator[wire.Frame]:
    """Pass records on, and load slow modules while the leaks of a large heap are collected.

    Not earlier: marking uses all processors, collecting mostly one.
    """
    from reachscan.recording import wire

    large = False
    for frame in frames:
        yield frame
        if frame.type == wire.HEAP:
            large = large or wire.parse(frame).allocations > LARGE
        elif large and frame.type == wire.PROGRESS and wire.parse(frame).phase == wire.COLLECT:
            from reachscan import analyse  # noqa: F401
            from reachscan.naming import symbols  # noqa: F401
            from reachscan.recording import columns  # noqa: F401


def _finish(recording: model.Recording, keeper: StreamSaver | None, *, root: Sysroot) -> ScanResult:
    """Analyse a recording, complete the saved stream if there is one, and return the result."""
    from reachscan.recording import model

    folded = None
    names = recording.names or {}
    warnings: tuple[model.Warning, ...] = ()
    begin = time.monotonic_ns()
    if recording.some_leaks or not recording.is_about_leaks or recording.recorded_mappings:
        # Most of this takes longer to load than a scan without leaks takes.
        from reachscan import analyse

        begin = time.monotonic_ns()
        folded = analyse.analyse(recording, root=root)
        names, warnings = folded.joined.names, folded.joined.warnings
    took = time.monotonic_ns() - begin
    memory, doubts = _memory(recording)
    phases = () if FOLD in dict(recording.snapshot.phases) else ((FOLD, took),)
    found = model.Findings(names, warnings + doubts, phases)
    save_error = _complete(keeper, found) if keeper else None
    recording = recording.completed(found)
    if folded and recording.block is not None:
        return BlockAnswer(recording, recording.block, folded, save_error)
    if folded and recording.kinds is not None:
        return HeapScan(recording, recording.kinds, folded, save_error)
    return LeakScan(recording, folded, memory, save_error)


def _memory(
    recording: model.Recording,
) -> tuple[PrivateMemory | None, tuple[model.Warning, ...]]:
    """Return how much private memory a leak search covers, and a warning if that is little."""
    from reachscan.naming import private_memory

    memory = private_memory.private_memory(recording) if recording.is_about_leaks else None
    said = [warning.code for warning in recording.warnings]
    if memory and memory.hides_heaps and private_memory.WARNING not in said:
        return memory, (private_memory.warning(recording, memory),)
    return memory, ()


def _complete(keeper: StreamSaver, found: model.Findings) -> errors.OutputError | None:
    """Complete the saved stream; return the error instead of raising it: the report comes first."""
    try:
        keeper.complete(found)
    except errors.OutputError as error:
        return error
    return None
