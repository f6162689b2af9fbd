"""Where processes are: on this machine or elsewhere, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from reachscan import errors
from reachscan.capture import helper, processes, target

if TYPE_CHECKING:
    from typing import TypeAlias

    from reachscan.capture.options import ScanOptions
    from reachscan.capture.sysroot import Sysroot
    from reachscan.recording import model, wire

Progressed: TypeAlias = "Callable[[model.Progress], None]"


class Life(Protocol):
    """The life of one process, from now on; a context manager."""

    pid: int

    def __enter__(self) -> Life: ...

    def __exit__(self, *_: object) -> None: ...

    def ends_within(self, seconds: float) -> bool:
        """Wait for the process to exit, but no longer than `seconds`; return whether it has."""
        ...

    def has_successor(self) -> bool:
        """Return whether the id belongs to another process by now."""
        ...

    def activity(self) -> bytes:
        """Return something that changes whenever a thread runs; nothing if it is not known."""
        ...


class Place(Protocol):
    """Something with processes that can be scanned."""

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes that a text names; see `processes.find`."""
        ...

    def resolve(self, name: str) -> int:
        """Return the id of the one process that a text names; see `processes.resolve`."""
        ...

    def check(self, pid: int) -> None:
        """Refuse a process that cannot be scanned, as far as this is known beforehand."""
        ...

    def life(self, pid: int) -> Life:
        """Return the life of a process."""
        ...

    def scan(
        self, pid: int, options: ScanOptions, on_progress: Progressed | None
    ) -> AbstractContextManager[Iterator[wire.Frame]]:
        """Run the helper; inside the block, its records arrive as it writes them."""
        ...

    def interrupted(self) -> None:
        """Go on after Ctrl-C, which has reached all programs of the terminal."""
        ...

    def sysroot(self, recording: model.Recording, on_progress: Progressed | None) -> Sysroot:
        """Return where to find the files of a scanned process."""
        ...


class Here:
    """This machine."""

    def find(self, name: str) -> list[int]:
        """Return the ids of all processes that a text names."""
        return processes.find(name)

    def resolve(self, name: str) -> int:
        """Return the id of the one process that a text names."""
        return processes.resolve(name)

    def check(self, pid: int) -> None:
        """Refuse a process that cannot be scanned."""
        target.check(pid)

    def life(self, pid: int) -> Life:
        """Return the life of a process."""
        from reachscan.capture.lifetime import Lifetime

        return Lifetime(pid)

    def interrupted(self) -> None:
        """Do nothing: no other program is needed."""

    def sysroot(self, recording: model.Recording, on_progress: Progressed | None) -> Sysroot:
        """Return where to find the files of a scanned process."""
        return None

    @contextmanager
    def scan(
        self, pid: int, options: ScanOptions, on_progress: Progressed | None
    ) -> Iterator[Iterator[wire.Frame]]:
        """Run the helper. If access is refused, the error explains why."""
        try:
            with helper.run(pid, options) as frames:
                yield frames
        except errors.NotPermittedError as error:
            raise target.explain_refusal(pid, error) from error
