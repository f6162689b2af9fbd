"""A pytest plugin: with `--reachscan`, tests that leak native memory fail.

A test can set a limit: `@pytest.mark.reachscan(limit="1 MiB")`.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Generator

import pytest

from reachscan import errors, inside

_MARKER = "reachscan(limit): with --reachscan, the test may leak so much, as in '1 MiB'"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+) ?([KMG]?)(?:i?B)?")
_SHOWN = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--reachscan`."""
    group = parser.getgroup("reachscan")
    group.addoption("--reachscan", action="store_true", help="fail tests that leak native memory")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and watch the tests if `--reachscan` was given."""
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--reachscan"):
        config.pluginmanager.register(_Watch(), "reachscan-watch")


class _Watch:
    """Looks for leaks that are there after a test, and were not before it."""

    def __init__(self) -> None:
        try:
            self._known = {leak.key for leak in _leaks()}
        except errors.ReachscanError as error:
            raise pytest.UsageError(f"--reachscan: {error}") from error

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse markers that make no sense before any test runs."""
        for item in items:
            _limit(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail the test if there are leaks that were not there before.

        Tests that fail or skip themselves are not judged. What they leak, and what fixtures leak,
        is known when the next test begins.
        """
        limit = _limit(item)
        self._known.update(leak.key for leak in _leaks())
        result = yield
        leaks = self._new()
        size = sum(leak.size for leak in leaks)
        if size > limit:
            pytest.fail(_report(leaks, size, limit), pytrace=False)
        return result

    def _new(self) -> list[inside.OwnLeak]:
        leaks = self._unknown()
        if leaks:  # a block in flight is not found twice
            keys = {leak.key for leak in self._unknown()}
            leaks = [leak for leak in leaks if leak.key in keys]
        self._known.update(leak.key for leak in leaks)
        return leaks

    def _unknown(self) -> list[inside.OwnLeak]:
        found = _leaks()
        # When a possible leak becomes definite, the test that has just run need not have lost it.
        self._known.update(leak.key for leak in found if leak.is_possible)
        return [leak for leak in found if leak.key not in self._known]


def _leaks() -> list[inside.OwnLeak]:
    gc.collect()
    return inside.check()


def _limit(item: pytest.Item) -> int:
    marker = item.get_closest_marker("reachscan")
    if marker is None:
        return 0
    match = _SIZE.fullmatch(str(marker.kwargs.get("limit", "")))
    if marker.args or match is None:
        raise pytest.UsageError(f"{item.nodeid}: a reachscan marker has a limit, as in '1 MiB'")
    return int(match[1]) * _UNITS[match[2]]


def _report(leaks: list[inside.OwnLeak], size: int, limit: int) -> str:
    allowed = f"; it may leak {limit} bytes" if limit else ""
    structures = "1 structure" if len(leaks) == 1 else f"{len(leaks)} structures"
    lines = [f"the test leaked {size} bytes of native memory in {structures}{allowed}", ""]
    lines += [leak.text for leak in leaks[:_SHOWN]]
    if len(leaks) > _SHOWN:
        lines.append(f"  and {len(leaks) - _SHOWN} more")
    return "\n".join(lines)
