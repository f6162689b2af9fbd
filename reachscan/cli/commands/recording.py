"""Options for what a process records."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING, Any

import click

from reachscan.capture import patterns
from reachscan.capture.recording_options import (
    MAX_DEPTH,
    MAX_RANGES,
    MIN_MEMORY,
    STACKS,
    RecordingOptions,
)
from reachscan.cli.commands.decorators import together
from reachscan.wording import count

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType

_NOT_HANDLED = (
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),
    signal.SIGTRAP,
)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_SIZE = re.compile(r"(\d+)([KMG]?)", re.ASCII | re.IGNORECASE)
_LARGEST = (1 << 63) - 1


class Size(_Type):
    """A number of bytes; K, M and G are powers of 1024."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        """Return the number.

        Raises:
            click.BadParameter: it is not a size, too small or too large.
        """
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(value)
        if not match:
            self.fail(f"{value!r} is not a size; examples: 512, 64K, 2M", parameter, context)
        size = int(match[1]) << _UNITS[match[2].upper()]
        if size < self._least:
            self.fail(f"{value} is less than {count(self._least, 'byte')}", parameter, context)
        if size > _LARGEST:
            self.fail(f"{value} is more than any process can have", parameter, context)
        return size


class _Sizes(_Type):
    """Sizes and ranges of sizes: `24,100-200`."""

    name = "sizes"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[tuple[int, int], ...]:
        """Return the ranges.

        Raises:
            click.BadParameter: one is not a range, or there are too many.
        """
        if isinstance(value, tuple):
            return value
        ranges = []
        for word in value.split(","):
            ends = [Size().convert(end, parameter, context) for end in word.split("-", 1)]
            if ends[0] > ends[-1]:
                self.fail(f"the range {word} is reversed", parameter, context)
            ranges.append((ends[0], ends[-1]))
        if len(ranges) > MAX_RANGES:
            self.fail(f"there are more than {MAX_RANGES} ranges", parameter, context)
        return tuple(ranges)


class Signal(_Type):
    """A signal that a process can handle, by its name: `USR1`, `SIGUSR1`."""

    name = "signal"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> int:
        """Return its number.

        Raises:
            click.BadParameter: it does not exist, or cannot be handled.
        """
        if isinstance(value, int):
            return value
        name = "SIG" + value.upper().removeprefix("SIG")
        number = signal.Signals.__members__.get(name)
        if number is None or number in _NOT_HANDLED:
            self.fail(
                f"{value!r} is not the name of a signal that a program can handle",
                parameter,
                context,
            )
        return int(number)


class _Pattern(_Type):
    """A POSIX extended regular expression."""

    name = "regex"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> tuple[patterns.Step, ...]:
        """Return its compiled steps.

        Raises:
            click.BadParameter: it is not a valid expression.
        """
        if isinstance(value, tuple):
            return value
        try:
            return tuple(patterns.compiled(value))
        except patterns.PatternError as error:
            why = f"{value!r} is not a valid extended regular expression: {error}"
            self.fail(why, parameter, context)


recording = together(
    click.option(
        "--min-size",
        type=Size(),
        metavar="N",
        default=0,
        help="Record only blocks of at least N bytes, as the program asks for them (also 4K, 1M).",
    ),
    click.option(
        "--sizes",
        type=_Sizes(),
        metavar="A,B-C",
        default=(),
        help="Record only blocks of these sizes.",
    ),
    click.option(
        "--sample",
        type=Size(least=1),
        metavar="BYTES",
        help="Record a random sample: on average one block per BYTES allocated; blocks that are "
        "not recorded have no stack.",
    ),
    click.option(
        "--depth",
        type=click.IntRange(1, MAX_DEPTH),
        metavar="N",
        default=32,
        help="Frames that are kept of a stack (default 32).",
    ),
    click.option(
        "--memory",
        type=Size(least=MIN_MEMORY),
        metavar="SIZE",
        default=64 << 20,
        help="Memory for all that is recorded (default 64M); when it is full, recording stops.",
    ),
    click.option(
        "--stacks",
        type=click.Choice(tuple(STACKS)),
        default="auto",
        help="How stacks are walked: by unwind tables (auto, tables), only as far as functions "
        "keep frame pointers, or (only with run) as functions report their calls that are "
        "compiled with -finstrument-functions.",
    ),
    click.option(
        "--stop-at",
        type=Size(least=1),
        metavar="SIZE",
        help="Stop recording once SIZE bytes are allocated and not freed.",
    ),
    click.option(
        "--mmap",
        is_flag=True,
        help="Record mappings, too (only with run); reports list them apart from the leaks.",
    ),
    click.option(
        "--module",
        type=_Pattern(),
        metavar="REGEX",
        default=(),
        help="Record only what is allocated by modules whose path matches.",
    ),
    click.option(
        "--thread",
        type=_Pattern(),
        metavar="REGEX",
        default=(),
        help="Record only what is allocated by threads whose name matches.",
    ),
)
"""Options: what is recorded. Passed to `options_of`."""


def options_of(given: dict[str, Any]) -> RecordingOptions:
    """Remove the recording options from those given to a command, and return them."""
    values = {name: given.pop(name) for name in RecordingOptions._fields}
    return RecordingOptions(**{name: value for name, value in values.items() if value is not None})


def options_of_attached(given: dict[str, Any]) -> RecordingOptions:
    """Return the recording options for a process that is already running.

    Raises:
        click.UsageError: an option works only from the start of a program.
    """
    options = options_of(given)
    if options.mmap:
        raise click.UsageError(
            "mappings are only recorded from the start of a process: use --mmap with reachscan run"
        )
    if options.stacks == "instrumented":
        raise click.UsageError(
            "instrumented functions report their calls only if recording starts with the process: "
            "use --stacks instrumented with reachscan run"
        )
    return options
