"""The options for the format of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from reachscan import reports
from reachscan.cli.commands.decorators import Decorator, together

FORMATS = {name: each for formats in reports.FORMATS.values() for name, each in formats.items()}

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice


class _FormatName(_Choice):
    """The name of a format; the error for other names lists them."""

    def convert(
        self, value: str, parameter: click.Parameter | None, context: click.Context | None
    ) -> str:
        """Return the name.

        Raises:
            click.BadParameter: there is no such format.
        """
        if value not in self.choices:
            command = context.info_name if context else None
            self.fail(reports.unknown(command or "this", value, self.choices), parameter, context)
        return value


def one_of(*subjects: str) -> Decorator:
    """Return options that choose a format of these subjects; `format_of` takes them."""
    names = dict.fromkeys(name for subject in subjects for name in reports.FORMATS[subject])
    help_ = ", ".join(f"{name} for {FORMATS[name].readers}" for name in names)
    return together(
        click.option("--format", "format_", type=_FormatName(tuple(names)), help=f"{help_}."),
        click.option("--json", "json_", is_flag=True, help="Same as --format json."),
    )


def format_of(format_: str | None, **flags: bool) -> reports.Format:
    """Return the format chosen by `--format` or by the flag of the same name.

    Raises:
        click.UsageError: they contradict each other.
    """
    chosen = {*([format_] if format_ else []), *(name for name, given in flags.items() if given)}
    if len(chosen) > 1:
        raise click.UsageError(f"a report has one format, not {' and '.join(sorted(chosen))}")
    return FORMATS[chosen.pop() if chosen else "text"]
