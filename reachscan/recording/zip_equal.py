"""Goes through columns row by row: `zip(strict=True)`, which Python 3.9 lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeVar, overload

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")


@overload
def zip_equal(first: Collection[_A], second: Collection[_B], /) -> Iterable[tuple[_A, _B]]: ...


@overload
def zip_equal(
    first: Collection[_A], second: Collection[_B], third: Collection[_C], /
) -> Iterable[tuple[_A, _B, _C]]: ...


@overload
def zip_equal(*columns: Collection[Any]) -> Iterable[Any]: ...


def zip_equal(*columns: Collection[Any]) -> Iterable[Any]:
    """Return the rows of columns.

    Raises:
        ValueError: the columns differ in length.
    """
    if len(lengths := {len(column) for column in columns}) > 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    return zip(*columns)
