"""Caches files of other machines' modules by build id; fetches them when they are needed.

They are stored below $XDG_CACHE_HOME/reachscan in the layout of debuggers: `.build-id/ab/cdef`. A
file is stored only if it has the requested build id.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from reachscan import errors
from reachscan.naming import confined, debug_files, elf_files

LARGEST = 1 << 30
"""Size of the largest file that is fetched, in bytes."""

Fetch = Callable[[str], Iterable[bytes]]
"""Returns a module's file in pieces, given its path in the process."""


def default_folder() -> Path:
    """Return this user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if base.startswith("/") else Path.home() / ".cache") / "reachscan"


class ModuleCache:
    """The files of one process that are not on this machine.

    Attributes:
        folder: a root folder that holds files by build id.
    """

    def __init__(self, folder: Path, fetch: Fetch) -> None:
        self.folder = folder
        self._fetch = fetch
        self._failed: dict[str, str] = {}

    def add(self, build_ids: Mapping[str, bytes]) -> dict[str, str]:
        """Fetch the files of some modules, by path; return why each missing one is missing.

        Files that failed before are not tried again.
        """
        for path, build_id in build_ids.items():
            if path not in self._failed:
                reason = self._why_not(path, build_id)
                if reason:
                    self._failed[path] = reason
        return self._failed

    def _why_not(self, path: str, build_id: bytes) -> str:
        """Fetch one file; return why that failed, or None."""
        places = list(debug_files.by_build_id(build_id, debug_files.MODULE))
        if not places:
            return "it has no build id to recognise its file by"
        place = self.folder / places[-1]
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
                partial = Path(file.name)
                try:
                    size = 0
                    for piece in self._fetch(path):
                        size += len(piece)
                        if size > LARGEST:
                            return f"its file has more than {LARGEST >> 30} GiB"
                        file.write(piece)
                    file.flush()
                    if _build_id(partial) != build_id:
                        return "the file there is not the one that was mapped"
                    partial.chmod(0o644)
                    partial.rename(place)
                finally:
                    partial.unlink(missing_ok=True)
        except errors.ReachscanError as error:
            return error.sentence
        except OSError as error:
            return f"it cannot be kept in {self.folder}: {error.strerror}"
        return ""


def _build_id(path: Path) -> bytes:
    def read(text: str) -> str:
        with elf_files.opened(lambda: open(text, "rb")) as elf:  # noqa: PTH123
            return elf_files.build_id(elf).hex()

    ((_, found),) = confined.each([str(path)], read)
    return b"" if isinstance(found, confined.Failed) else bytes.fromhex(found)
