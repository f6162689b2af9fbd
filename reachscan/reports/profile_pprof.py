"""Profiles for pprof, with the four values that heapprofd has.

Only blocks that are still allocated are known, so the values for everything ever allocated equal
those for memory in use.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from reachscan.naming.owners import plain_path
from reachscan.recording import model
from reachscan.recording.origins import Frame, call_before
from reachscan.reports import Selection, Style, plain
from reachscan.reports.profile import UNKNOWN, Names, Sample, Scan, samples
from reachscan.reports.protobuf import bytes_field, number_field, packed_field
from reachscan.wording import printable

COUNT, BYTES = "count", "bytes"
VALUES = (
    ("Total malloc count", COUNT),
    ("Total malloc size", BYTES),
    ("Unreleased malloc count", COUNT),
    ("Unreleased malloc size", BYTES),
)
_SHOWN_FIRST = {"count": "Unreleased malloc count", "bytes": "Unreleased malloc size"}


def lines(scan: Scan, selection: Selection, _: Style = plain) -> Iterator[bytes]:
    """Yield the profile, as one piece."""
    yield gzip.compress(_Profile(scan, selection).encoded(), mtime=0)


class _Profile:
    """The message `Profile` of profile.proto, while it is being built."""

    def __init__(self, scan: Scan, selection: Selection) -> None:
        self._recording, self._selection = scan.recording, selection
        self._names = Names(scan.recording)
        self._strings: dict[str, int] = {"": 0}
        self._mappings: dict[str, int] = {}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[tuple[Frame, ...], int] = {}
        self._parts: list[bytes] = []
        for kind, unit in VALUES:
            value_type = number_field(1, self._text(kind)) + number_field(2, self._text(unit))
            self._parts.append(bytes_field(1, value_type))
        # The format wants the main binary to be the first.
        for module in self._recording.modules:
            if module.path == self._recording.target.exe:
                self._mapping(module.path, module.build_id.hex())
        for sample in samples(scan):
            self._parts.append(bytes_field(2, self._sample(sample)))

    def encoded(self) -> bytes:
        default = self._text(_SHOWN_FIRST[self._selection.weight])
        texts = [bytes_field(6, text.encode("utf-8", "replace")) for text in self._strings]
        started = number_field(9, self._recording.target.started)
        return b"".join((*self._parts, *texts, started, number_field(14, default)))

    def _sample(self, sample: Sample) -> bytes:
        places = [self._location(frames) for frames in self._names.calls(sample.stack)]
        thread = printable(self._names.thread(sample.thread))
        if not places:
            places = [self._location((Frame(0, function=UNKNOWN),))]
        if thread and self._selection.per_thread:
            places.append(self._location((Frame(0, function=thread),)))
        amounts = [sample.allocations, sample.bytes] * 2
        label = number_field(1, self._text("thread")) + number_field(2, self._text(thread))
        return (
            packed_field(1, places)
            + packed_field(2, amounts)
            + (bytes_field(3, label) if thread else b"")
        )

    def _location(self, frames: tuple[Frame, ...]) -> int:
        """Return the number of a call; its lines are the functions inlined there."""
        if frames not in self._locations:
            lines = []
            for frame in frames:
                line = number_field(1, self._function(frame)) + number_field(2, frame.line or 0)
                lines.append(bytes_field(4, line))
            pc = frames[-1].pc
            number = len(self._locations) + 1
            fields = (
                number_field(1, number),
                number_field(2, self._mapping(frames[-1].module, frames[-1].build_id)),
                number_field(3, call_before(pc) if pc else 0),
                *lines,
            )
            self._parts.append(bytes_field(4, b"".join(fields)))
            self._locations[frames] = number
        return self._locations[frames]

    def _function(self, frame: Frame) -> int:
        name, file = printable(frame.label), printable(frame.file or "")
        if (name, file) not in self._functions:
            number = self._functions[name, file] = len(self._functions) + 1
            # Without a name for the system: pprof would take the same one for a mangled name, and
            # leave out what is in angle brackets, which is all of `<module>`.
            texts = number_field(2, self._text(name)) + number_field(4, self._text(file))
            fields = number_field(1, number) + texts
            self._parts.append(bytes_field(5, fields))
        return self._functions[name, file]

    def _mapping(self, module: str | None, build_id: str | None) -> int:
        """Return the number of the mapping of a file's code, 0 for code of no file."""
        if module is None:
            return 0
        if module not in self._mappings:
            number = self._mappings[module] = len(self._mappings) + 1
            fields = (
                number_field(1, number),
                *self._place(module),
                number_field(5, self._text(printable(module))),
                number_field(6, self._text(build_id or "")),
                *(number_field(has, 1) for has in (7, 8, 9, 10)),
            )
            self._parts.append(bytes_field(3, b"".join(fields)))
        return self._mappings[module]

    def _place(self, path: str) -> Iterator[bytes]:
        """Yield the mappings of a module's code; nothing if it is closed."""
        for m in self._recording.mappings:
            if m.permissions & model.EXECUTE and plain_path(m.path) == path:
                yield number_field(2, m.start) + number_field(3, m.end) + number_field(4, m.offset)
                return

    def _text(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))
