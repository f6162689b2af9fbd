"""Where processes are: on this machine, or wherever else the same can be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from reachscan import errors
from reachscan.capture import helper, processes, target

if TYPE_CHECKING:
    from types import TracebackType

    from reachscan.capture.options import ScanOptions
    from reachscan.capture.sysroot import Sysroot
    from reachscan.recording import model, wire

Progressed: TypeAlias = "Callable[[model.Progress], None]"


class Life(Protocol):
    """The life of one process, from now on. To be used in a `with` statement."""

    pid: int

    def __enter__(self) -> Life: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def ends_within(self, seconds: float) -> bool:
        """Wait so long, but no longer than the process lives; tell whether it has ended."""
        ...

    def has_successor(self) -> bool:
        """Tell whether another process has got the id by now."""
        ...


class Place(Protocol):
    """Something with processes that can be scanned."""

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes that a text means, as `processes.find`."""
        ...

    def resolve(self, name: str) -> int:
        """Return the id of the one process that a text means, as `processes.resolve`."""
        ...

    def check(self, pid: int) -> None:
        """Refuse a process that cannot be scanned, as far as that can be told beforehand."""
        ...

    def life(self, pid: int) -> Life:
        """Return the life of a process."""
        ...

    def scan(
        self, pid: int, options: ScanOptions, on_progress: Progressed | None
    ) -> AbstractContextManager[Iterator[wire.Frame]]:
        """Run the helper; inside the block its records arrive as they are made."""
        ...

    def sysroot(self, recording: model.Recording, on_progress: Progressed | None) -> Sysroot:
        """Return where the files of a process are that was scanned."""
        ...


class Here:
    """This machine."""

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes that a text means."""
        return processes.find(name)

    def resolve(self, name: str) -> int:
        """Return the id of the one process that a text means."""
        return processes.resolve(name)

    def check(self, pid: int) -> None:
        """Refuse a process that cannot be scanned."""
        target.check(pid)

    def life(self, pid: int) -> Life:
        """Return the life of a process."""
        from reachscan.capture.lifetime import Lifetime

        return Lifetime(pid)

    def sysroot(self, recording: model.Recording, on_progress: Progressed | None) -> Sysroot:
        """Return where the files of a process are that was scanned."""
        return None

    @contextmanager
    def scan(
        self, pid: int, options: ScanOptions, on_progress: Progressed | None
    ) -> Iterator[Iterator[wire.Frame]]:
        """Run the helper; whose refusals are explained."""
        try:
            with helper.run(pid, options) as frames:
                yield frames
        except errors.NotPermittedError as error:
            raise target.explain_refusal(pid, error) from error
