"""Decorators that add several options to a command at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*decorators: Decorator) -> Decorator:
    """Return one decorator that adds several options, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate
