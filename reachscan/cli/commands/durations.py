"""Times on the command line: numbers of seconds for which one can wait."""

from __future__ import annotations

from typing import Any

import click

_LONGEST_DAYS = 24
"""`poll` counts milliseconds in 31 bits, which is not quite 25 days."""


class Seconds(click.FloatRange):
    """A number of seconds, within limits if they are given."""

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> float:
        """Return the number.

        Raises:
            click.BadParameter: it is none, too small or too large.
        """
        seconds = float(super().convert(value, parameter, context))
        if not seconds <= _LONGEST_DAYS * 86400:  # nor is `nan`
            self.fail(
                f"{value!r} is not a number of seconds (at most {_LONGEST_DAYS} days)",
                parameter,
                context,
            )
        return seconds


SECONDS = Seconds(0, min_open=True)
