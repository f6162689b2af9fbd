"""Reports: one module for each subject and format, listed in `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from reachscan import errors

DEFAULT_WIDTH = 100


class Style(NamedTuple):
    """How a report for people looks.

    Attributes:
        paint: colours a text by its role: `headline`, `good`, `dim` or `warning`.
        width: maximum columns of a line.
    """

    paint: Callable[[str, str], str] = lambda text, _: text
    width: int = DEFAULT_WIDTH

    def __call__(self, text: str, what: str) -> str:
        """Return a text in the colours of its role."""
        return self.paint(text, what)


plain = Style()
"""The style for files: no colours."""


class Selection(NamedTuple):
    """How much a report shows.

    Attributes:
        limit: maximum number of rows (groups, changes, references); totals cover everything.
        contents: bytes to show of each group's example.
        every_block: list every leaked block, too.
        all_stacks: include all stacks, not only those of the rows.
        weight: weight of a stack in profiles, "bytes" or "count".
        per_thread: in profiles, make the thread's name the outermost frame.
        candidates: read all debug information, to find structs that blocks could be.
    """

    limit: int = 20
    contents: int = 32
    every_block: bool = False
    all_stacks: bool = False
    weight: str = "bytes"
    per_thread: bool = False
    candidates: bool = False


_USUAL = Selection()


class Format(NamedTuple):
    """A format of reports.

    Attributes:
        name: its name in `--format`.
        readers: who or what can read it.
        subjects: the subjects that it supports. The module SUBJECT_NAME of this package has a
            function `lines`, which takes the subject, a `Selection` and a `Style`, and yields lines
            of text without line ends, or raw bytes.
        limit, contents: defaults of the `Selection`.
        gap: separate reports on several processes by an empty line.
        profile: it shows all blocks by stack, and has no other rows. The module profile_NAME
            serves all subjects.
        weighted: it is such a profile, and obeys `weight` and `per_thread`.
        file: usual name of a file in this format, if other programs open it: such a report is about
            one process, and not for terminals. None for text.
    """

    name: str
    readers: str
    subjects: tuple[str, ...]
    limit: int = _USUAL.limit
    contents: int = _USUAL.contents
    gap: bool = False
    profile: bool = False
    weighted: bool = False
    file: str | None = None


LEAKS, HEAP, EXPLAIN, DIFF, WATCH = "leaks", "heap", "explain", "diff", "watch"
"""Subjects: leaked blocks; live blocks; one block; a comparison; repeated scans."""


def _profile(name: str, readers: str, file: str | None = None, *, weighted: bool = True) -> Format:
    usual = Format(name, readers, (LEAKS, HEAP), limit=0, contents=0, profile=True, file=file)
    return usual._replace(weighted=weighted)


_ALL = (
    Format("text", "people (default)", (LEAKS, HEAP, EXPLAIN, DIFF, WATCH), gap=True),
    Format("json", "programs", (LEAKS, HEAP, EXPLAIN, DIFF, WATCH)),
    Format("logfmt", "logs", (LEAKS, HEAP, EXPLAIN, DIFF, WATCH), contents=0),
    Format(
        "html",
        "browsers (one file, works offline)",
        (LEAKS, HEAP, DIFF),
        limit=1000,
        file="page.html",
    ),
    _profile("folded", "flame graph tools (a line for each stack)"),
    _profile("speedscope", "speedscope.app"),
    _profile("pprof", "pprof (gzipped)", file="heap.pb.gz"),
    _profile("heapdump", "readers of Android's heap dumps", weighted=False),
    _profile("raphael", "readers of Raphael's reports", weighted=False),
)

FORMATS = {
    subject: {each.name: each for each in _ALL if subject in each.subjects}
    for subject in (LEAKS, HEAP, EXPLAIN, DIFF, WATCH)
}
"""Subject -> name -> format. A format's module is imported when it is used."""


def lines(
    subject: str, name: str, what: Any, selection: Selection, style: Style = plain
) -> Iterator[str | bytes]:
    """Return a report piece by piece: lines of text without line ends, or raw bytes.

    Args:
        subject: one of `FORMATS`.
        name: name of a format.
        what: the result of a scan, a comparison, or an event of a watch.
        selection: how much of it to show.
        style: how text looks.

    Raises:
        UnknownFormatError: the format does not exist for this subject.
    """
    if name not in FORMATS[subject]:
        raise errors.UnknownFormatError(unknown(subject, name, FORMATS[subject]))
    module = import_module(module_of(subject, FORMATS[subject][name]))
    written: Iterator[str | bytes] = module.lines(what, selection, style)
    return written


def module_of(subject: str, format_: Format) -> str:
    """Return the module that writes reports on a subject in one of its formats."""
    return f"{__name__}.{'profile' if format_.profile else subject}_{format_.name}"


def unknown(subject: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about an unknown format."""
    return f"{subject} cannot write the format {name!r}; choose {', '.join(known)}"
