"""The options of a scan, from the command line to the arguments of the helper."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Question(NamedTuple):
    """The question that a scan answers.

    Attributes:
        about: "leaks", "heap" (kinds of live blocks), "explain" (what keeps the block at an
            address) or "refs" (what points to it).
        address: an address in the block; 0 if the question is not about a block.
    """

    about: str = "leaks"
    address: int = 0

    def arguments(self) -> list[str]:
        """Return the helper's arguments for the question."""
        if self.about == "leaks":
            return []
        return [f"--{self.about}", *([hex(self.address)] if self.address else [])]


LEAKS = Question()


class ScanOptions(NamedTuple):
    """How to scan. Options of the command line have the same names.

    Attributes:
        method: how memory is captured: auto, clone, copy, track or live.
        threads: marking threads; None to let the helper choose.
        nice: added to the nice value of the search.
        timeout: seconds after which the scan gives up; None for never.
        max_pause: longest pause of the process in milliseconds; None for a second.
        contents: bytes wanted of each leaked block; with 0, a saved file contains none.
        verbose: let the helper print on stderr what each step does.
        save: file to save the raw stream in.
        confirm: number of scans that must find a leak; more scans are more certain.
        confirm_every: seconds between these scans.
        thorough: scan at several moments, and report what any of the scans finds lost.
        digests: include digests of the contents of leaked blocks, to compare scans.
        lost_before: blocks that earlier scans found lost, as the helper reads them.
        recorded_only: report only leaks whose allocation was recorded.
        known_leaks: address and size of the leaks from before that; None if nobody looked.
        question: the question to answer.
        recorder: arguments of the helper that begin or end recording, instead of a scan.
        python: treat Python objects as a heap of their own, not as roots.
        root: folder that holds the files that were mapped when a core file was written.
        on: where the process is, as in "ssh:build7"; None for this machine.
        sysroot: folder with that machine's files; None to fetch those that are needed.
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
    thorough: bool = False
    digests: bool = False
    lost_before: bytes = b""
    recorded_only: bool = False
    known_leaks: frozenset[tuple[int, int]] | None = None
    python: bool = False
    question: Question = LEAKS
    recorder: tuple[str, ...] = ()
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
            words += ["--timeout", str(math.ceil(self.timeout))]  # whole seconds
        # Suppression rules about text read the contents, which otherwise stay in this process.
        words += ["--withhold-contents"] * (not self.contents and self.save is not None)
        words += ["--digests"] * self.digests
        words += ["--python"] * self.python
        words += self.recorder
        return [*words, "--verbose"] if self.verbose else words
