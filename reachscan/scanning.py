"""The story of one scan, from a process id to groups of leaks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from reachscan import errors
from reachscan.capture import helper, processes, target
from reachscan.capture.options import Question, ScanOptions
from reachscan.result import ScanResult

# The rest is imported where it is needed: what reads the stream while the helper is at work, and
# what takes long to load only if there are leaks, or if somebody asked for it.
if TYPE_CHECKING:
    from pathlib import Path

    from reachscan.recording import model, wire
    from reachscan.recording.confirm import Confirmer
    from reachscan.recording.save import StreamKeeper

LARGE = 500_000
"""From a heap of so many blocks, leaks take as long to collect as the libraries to load."""

FOLD = "fold"
"""The phase that happens here: naming and grouping."""

Progressed: TypeAlias = "Callable[[model.Progress], None]"


def scan(
    process: int | str, options: ScanOptions | None = None, on_progress: Progressed | None = None
) -> ScanResult:
    """Find the leaks of a running process.

    Example:
        reachscan.scan("redis-server").groups(limit=5)

    Args:
        process: its id, or its name if no other has the same.
        options: how to scan.
        on_progress: called now and then with how far the scan has come.

    Raises:
        ReachscanError: the scan could not be done; the class says why.
    """
    options = options or ScanOptions()
    pid = processes.resolve(str(process))
    target.check(pid)
    with _keeper(options.save) as keeper:
        recording = _record(pid, options, keeper, on_progress)
        result = _analyse(recording, live=True)
        return _complete(result, recording, keeper)


def heap(process: int | str, options: ScanOptions | None = None) -> ScanResult:
    """Tell what the heap of a running process is made of, leaked or not.

    Example:
        reachscan.heap(4711).groups(limit=5)

    Args:
        process: its id, or its name if no other has the same.
        options: how to scan; their question is replaced.

    Raises:
        ReachscanError: the scan could not be done; the class says why.
    """
    return scan(process, (options or ScanOptions())._replace(question=Question("heap")))


def explain(process: int | str, address: int, options: ScanOptions | None = None) -> ScanResult:
    """Tell what keeps the block at an address alive: `recording.block` and `recording.chain`.

    Example:
        reachscan.explain(4711, 0x55d0c8a41230).recording.chain

    Args:
        process: its id, or its name if no other has the same.
        address: anywhere in the block.
        options: how to scan; their question is replaced.

    Raises:
        ReachscanError: the scan could not be done; the class says why.
    """
    return scan(process, (options or ScanOptions())._replace(question=Question("explain", address)))


def load(path: str | Path, on_progress: Progressed | None = None) -> ScanResult:
    """Read a saved stream.

    Example:
        reachscan.load("day1.rsc").counted

    Args:
        path: what `ScanOptions.save` or the helper wrote.
        on_progress: called with each progress record that is in the file.

    Raises:
        OutputError: the file cannot be read.
        ReachscanError: it is none of ours, damaged, or tells of a scan that failed.
    """
    from reachscan.recording import wire
    from reachscan.recording.decode import decode

    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a text will do, too
            recording = decode(wire.frames(file), on_progress)
    except OSError as error:
        raise errors.OutputError(f"cannot read {path}: {error.strerror}") from error
    return _analyse(recording, live=False)


@contextmanager
def _keeper(path: str | Path | None) -> Iterator[StreamKeeper | None]:
    if path is None:
        yield None
        return
    from pathlib import Path

    from reachscan.recording.save import StreamKeeper

    keeper = StreamKeeper(Path(path))
    try:
        yield keeper
    finally:
        keeper.discard()


def _record(
    pid: int, options: ScanOptions, keeper: StreamKeeper | None, on_progress: Progressed | None
) -> model.Recording:
    if options.confirm > 1:
        frames = _repeat(pid, options, on_progress).confirmed()
        return _decoded(frames, keeper, None)
    with _stream(pid, options) as frames:
        return _decoded(frames, keeper, on_progress)


def _decoded(
    frames: Iterator[wire.Frame], keeper: StreamKeeper | None, on_progress: Progressed | None
) -> model.Recording:
    from reachscan.recording.decode import decode

    frames = _loading_meanwhile(frames)
    return decode(keeper.keep(frames) if keeper else frames, on_progress)


def _loading_meanwhile(frames: Iterator[wire.Frame]) -> Iterator[wire.Frame]:
    """Pass records on, and load what leaks need while those of a large heap are collected.

    Not before: marking takes all processors, collecting mostly one.
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


def _repeat(pid: int, options: ScanOptions, on_progress: Progressed | None) -> Confirmer:
    from reachscan.capture.lifetime import Lifetime
    from reachscan.recording.confirm import Confirmer
    from reachscan.recording.decode import decode

    confirmer = Confirmer(round(options.confirm_every * 1e9))
    end = time.monotonic() + (options.timeout or math.inf)
    with Lifetime(pid) as life:
        for done in range(options.confirm):
            if done and life.ends_within(min(options.confirm_every, end - time.monotonic())):
                sentence = f"process {pid} exited after {done} of {options.confirm} scans"
                raise errors.TargetGoneError(sentence)
            left = end - time.monotonic()
            if left <= 0:
                raise errors.TimedOutError(f"the scans took longer than {options.timeout:g} s")
            one = options._replace(timeout=left if options.timeout else None, digests=True)
            with _stream(pid, one) as stream:
                frames = list(stream)
            if life.has_successor():
                raise errors.TargetGoneError(
                    f"process {pid} exited, and another one has its id now"
                )
            confirmer.add(frames, decode(frames, on_progress))
    return confirmer


@contextmanager
def _stream(pid: int, options: ScanOptions) -> Iterator[Iterator[wire.Frame]]:
    try:
        with helper.run(pid, options) as frames:
            yield frames
    except errors.NotPermittedError as error:
        raise target.explain_refusal(pid, error) from error


def _analyse(recording: model.Recording, *, live: bool) -> ScanResult:
    """Name and group what was found; add what that took, and warnings, to the recording."""
    folded = None
    begin = time.monotonic_ns()
    if recording.some_leaks or recording.kinds or recording.block:
        # Most of this takes longer to load than a scan without leaks.
        from reachscan import analyse

        begin = time.monotonic_ns()
        recording, folded = analyse.analyse(recording, live=live)
    elif recording.names is None:
        recording = recording._replace(names={})
    snapshot = recording.snapshot
    if FOLD not in dict(snapshot.phases):
        took = time.monotonic_ns() - begin
        snapshot = snapshot._replace(phases=(*snapshot.phases, (FOLD, took)))
    return _with_memory(ScanResult(recording._replace(snapshot=snapshot), folded))


def _with_memory(result: ScanResult) -> ScanResult:
    """Add how much of the process the search for leaks covers, and a warning if that is little."""
    from reachscan.naming import private_memory

    recording = result.recording
    memory = private_memory.private_memory(recording) if result.is_about_leaks else None
    if memory is None:
        return result
    said = [warning.code for warning in recording.warnings]
    if memory.hides_heaps and private_memory.WARNING not in said:
        more = private_memory.warning(recording, memory)
        recording = recording._replace(warnings=(*recording.warnings, more))
    return result._replace(recording=recording, memory=memory)


def _complete(
    result: ScanResult, recorded: model.Recording, keeper: StreamKeeper | None
) -> ScanResult:
    """Complete the saved stream; a failure is handed on, for the report comes first."""
    if keeper is None:
        return result
    analysed = result.recording
    try:
        keeper.complete(
            dict(analysed.names or {}),
            analysed.warnings[len(recorded.warnings) :],
            analysed.snapshot.phases[len(recorded.snapshot.phases) :],
        )
    except errors.OutputError as error:
        return result._replace(save_error=error)
    return result
