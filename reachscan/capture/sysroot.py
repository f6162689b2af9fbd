"""Where to find the files that a process has mapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeAlias


class FetchedFiles(Protocol):
    """Files of another machine, fetched when they are needed.

    Attributes:
        folder: the folder that holds them, by build id.
    """

    folder: Path

    def add(self, build_ids: Mapping[str, bytes]) -> dict[str, str]:
        """Fetch the files of some modules, by path; return why each missing one is missing."""
        ...


Sysroot: TypeAlias = "str | Path | FetchedFiles | None"
"""A folder that holds the files; or what fetches them; or None if the process still runs here, and
its files are those that it sees."""
