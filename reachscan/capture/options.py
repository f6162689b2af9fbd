"""The options of a scan, from the command line to the arguments of the helper."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Question(NamedTuple):
    """What the helper shall find out.

    Attributes:
        about: "leaks", "heap" (kinds of live blocks), "explain" (what keeps the block at an
            address) or "refs" (who points to it).
        address: of the block; 0 where the question is about none.
    """

    about: str = "leaks"
    address: int = 0

    def arguments(self) -> list[str]:
        """Return the words of the helper's command line that ask it."""
        if self.about == "leaks":
            return []
        return [f"--{self.about}", *([hex(self.address)] if self.address else [])]


LEAKS = Question()


class ScanOptions(NamedTuple):
    """How to scan; options of the command line have the same names.

    Attributes:
        method: how memory is captured: auto, clone, copy, track or live.
        threads: marking threads; None for as many as the helper finds good.
        nice: added to the nice value that the search has.
        timeout: seconds after which the scan gives up; None for never.
        max_pause: milliseconds that the process may be stopped for at a time; None for a second.
        contents: bytes of a leaked block that are wanted; with 0, none are in a file that is saved.
        verbose: let the helper tell on stderr what each step does.
        save: file to keep the raw stream in.
        confirm: how many scans a leak has to be in; more than 1 make it surer.
        confirm_every: seconds between those scans.
        digests: digests of what leaked blocks hold are wanted, to compare scans.
        recorded_only: only leaks whose allocation was recorded are wanted.
        question: what to find out.
        python: Python objects are blocks of a heap of their own, and no roots.
        root: folder below which the files lie that were mapped when a core file was written.
        on: where the process is, as in "ssh:build7"; None for this machine.
        sysroot: folder below which the files of that machine lie; None to fetch what is needed.
    """

    method: str = "auto"
    threads: int | None = None
    nice: int = 0
    timeout: float | None = None
    max_pause: int | None = None
    contents: int = 32
    verbose: bool = False
    save: str | Path | None = None
    confirm: int = 1
    confirm_every: float = 1.0
    digests: bool = False
    recorded_only: bool = False
    python: bool = False
    question: Question = LEAKS
    root: str | Path = "/"
    on: str | None = None
    sysroot: str | Path | None = None

    def arguments(self, pid: int) -> list[str]:
        """Return the command line of the helper for one scan of a process, without its path."""
        words = ["--pid", str(pid), "--method", self.method]
        if self.max_pause is not None:
            words += ["--max-pause", str(self.max_pause)]
        return words + self._common_arguments()

    def core_arguments(self, path: str) -> list[str]:
        """Return the same for the scan of a core file."""
        return ["--core", path, "--root", str(self.root), *self._common_arguments()]

    def _common_arguments(self) -> list[str]:
        words = ["--contents", str(self.contents), *self.question.arguments()]
        if self.nice:
            words += ["--nice", str(self.nice)]
        if self.threads is not None:
            words += ["--threads", str(self.threads)]
        if self.timeout is not None:
            words += ["--timeout", str(math.ceil(self.timeout))]  # it counts whole seconds
        # What is not kept stays in this process; rules about text look at it.
        words += ["--withhold-contents"] * (not self.contents and self.save is not None)
        words += ["--digests"] * self.digests
        words += ["--python"] * self.python
        return [*words, "--verbose"] if self.verbose else words
