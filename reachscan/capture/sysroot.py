"""Where the files are that a process has mapped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path


class FetchedFiles(Protocol):
    """Files of another machine, which come here when they are needed.

    Attributes:
        folder: a root folder, below which they lie by their build ids.
    """

    folder: Path

    def add(self, build_ids: Mapping[str, bytes]) -> dict[str, str]:
        """Fetch the files of some modules, by path; return why those are missing that are."""
        ...


Sysroot: TypeAlias = "str | Path | FetchedFiles | None"
"""A folder below which they lie; None if the process still exists here, and files are those that it
sees; or what fetches them."""
