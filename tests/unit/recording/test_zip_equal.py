"""Columns row by row."""

from __future__ import annotations

import pytest

from reachscan.recording.zip_equal import zip_equal


def test_rows_of_equally_long_columns() -> None:
    assert list(zip_equal([1, 2], "ab")) == [(1, "a"), (2, "b")]
    assert list(zip_equal()) == []


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different lengths: \[1, 2\]"):
        zip_equal([1, 2], [3])
