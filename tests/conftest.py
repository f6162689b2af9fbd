"""Stops early with the cure where nothing could be tested; provides the `victim` fixture."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
import victims
from scans import HELPER
from victims import Victim

pytest_plugins = ("command_lines", "sleepers")

# How fast this machine is today is no property of the code.
hypothesis.settings.register_profile(
    "reachscan", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("reachscan")

# Workers that run side by side are told a width, as of a terminal; text would be as wide as that.
os.environ.pop("COLUMNS", None)

# A shell starts what it puts into the background with Ctrl-C ignored; tests send it to programs.
signal.signal(signal.SIGINT, signal.default_int_handler)

INTEGRATION = Path(__file__).parent / "integration"
TIME_LIMIT = int(os.environ.get("REACHSCAN_TEST_SECONDS", "1200"))
PTRACE_ATTACH = 16
PTRACE_DETACH = 17

StartVictim = Callable[..., Victim]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any(INTEGRATION in item.path.parents for item in items):
        problem = _what_is_missing()
        if problem:
            pytest.exit(problem, returncode=4)


def _what_is_missing() -> str | None:
    if not os.access(HELPER, os.X_OK):
        return f"{HELPER} is not built. Run `make build` first."
    if not _may_trace():
        return (
            "This process may not trace another one. Run the tests as root, allow it with "
            "`sysctl kernel.yama.ptrace_scope=0`, or start the container with "
            "`--cap-add=SYS_PTRACE`."
        )
    return None


def _may_trace() -> bool:
    """Try it on a child that did not ask for it, as a scan does."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    # Yama's rule lets a process trace its children: ask about a process that is none of ours.
    try:
        traced = libc.ptrace(PTRACE_ATTACH, child, None, None) == 0
        if traced:
            os.waitpid(child, 0)
            libc.ptrace(PTRACE_DETACH, child, None, None)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    restricted = scope.exists() and scope.read_text().strip() != "0"
    return traced and (os.geteuid() == 0 or not restricted)


@pytest.fixture
def victim() -> Iterator[StartVictim]:
    """Start fixture programs by name; each has verified itself when the test ends."""
    with ExitStack() as stack:

        def start(
            name: str,
            *arguments: object,
            command: list[str] | None = None,
            environment: Mapping[str, str] | None = None,
        ) -> Victim:
            words = command or [str(victims.build(name))]
            words = [*words, *map(str, arguments)]
            return stack.enter_context(victims.running(words, environment))

        yield start


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """No test may hang: whatever it waits for is interrupted in the end."""

    def give_up(number: int, frame: object) -> None:
        pytest.fail(f"the test took longer than {TIME_LIMIT} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(TIME_LIMIT)
    yield
    signal.alarm(0)


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    """Where a victim writes the truth about its heap."""
    return tmp_path / "truth"
