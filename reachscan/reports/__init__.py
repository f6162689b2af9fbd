"""Reports: for each subject and format a module of this package, which `FORMATS` leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from reachscan import errors

USUAL_WIDTH = 100


class Style(NamedTuple):
    """What a report for people looks like.

    Attributes:
        paint: takes a text and what it is: `headline`, `good`, `dim` or `warning`.
        width: columns of a line.
    """

    paint: Callable[[str, str], str] = lambda text, _: text
    width: int = USUAL_WIDTH

    def __call__(self, text: str, what: str) -> str:
        """Return a text as it shall be shown."""
        return self.paint(text, what)


plain = Style()
"""Without colours, for files."""


class Selection(NamedTuple):
    """How much goes into a report.

    Attributes:
        limit: rows listed (groups, changes, references); totals always cover all.
        contents: bytes shown of the example of each group.
        every_block: list every leaked block too.
        all_stacks: all stacks are told, not only those of the rows.
        weight: what a stack counts for in profiles, "bytes" or "count".
        per_thread: the name of the thread is the outermost frame of stacks in profiles.
        candidates: read all debug information for structs that blocks could be.
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
    """A way to write reports.

    Attributes:
        name: what `--format` calls it.
        readers: who can use it.
        subjects: what it can tell of. The module SUBJECT_NAME of this package has the function
            `lines`; it takes what is to be told of, a `Selection` and a `Style`, and yields lines
            of text without their ends, or bytes that are written as they are.
        limit, contents: of the `Selection`, where nobody says otherwise.
        gap: reports on several processes have an empty line in between.
        profile: it shows all blocks by their stacks, and rows of no other kind. The module
            profile_NAME serves all subjects.
        file: what a report of that kind is usually called, if it is a file that some program opens:
            it is about one process, and not for terminals. None if it is text.
    """

    name: str
    readers: str
    subjects: tuple[str, ...]
    limit: int = _USUAL.limit
    contents: int = _USUAL.contents
    gap: bool = False
    profile: bool = False
    file: str | None = None


LEAKS, HEAP, EXPLAIN, DIFF, WATCH = "leaks", "heap", "explain", "diff", "watch"
"""Subjects: leaked blocks; live blocks; one block; what changed; scans again and again."""


def _profile(name: str, readers: str, file: str | None = None) -> Format:
    return Format(name, readers, (LEAKS, HEAP), limit=0, contents=0, profile=True, file=file)


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
    _profile("heapdump", "readers of Android's heap dumps"),
    _profile("raphael", "readers of Raphael's reports"),
)

FORMATS = {
    subject: {each.name: each for each in _ALL if subject in each.subjects}
    for subject in (LEAKS, HEAP, EXPLAIN, DIFF, WATCH)
}
"""Subject -> name -> format. Only what is wanted is imported."""


def lines(
    subject: str, name: str, what: Any, selection: Selection, style: Style = plain
) -> Iterator[str | bytes]:
    """Return a report piece by piece: lines of text without line ends, or bytes as they are.

    Args:
        subject: one of `FORMATS`.
        name: of one of the formats that the subject has.
        what: what is to be told of: the result of a scan, a comparison, an event of a watch.
        selection: how much of it.
        style: what text looks like.

    Raises:
        UnknownFormatError: the subject has no such format.
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
    """Return the sentence about a format that there is not."""
    return f"{subject} has no format {name}: {', '.join(known)}"
