"""Work on hostile files that wants too much: the rest is done, and nothing is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from victims import DEADLINE

from reachscan.naming import confined
from reachscan.naming.confined import Failed, each
from reachscan.naming.untrusted_files import UnusableFileError

EMPTY: dict[str, int] = {}


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    before = children()
    yield
    assert children() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def unless_bad(act: Callable[[], Any]) -> Callable[[str], Any]:
    """Return work that answers with its item in capitals, but does something else for "bad"."""
    return lambda item: act() if item == "bad" else item.upper()


def reason(act: Callable[[], Any]) -> str:
    """Return why an item failed between two that must not."""
    found = dict(each(["a", "bad", "b"], unless_bad(act)))
    assert (found["a"], found["b"]) == ("A", "B")
    assert isinstance(found["bad"], Failed)
    assert found["bad"].untried == 0
    return found["bad"].reason


def test_answers_come_back_as_they_were_given() -> None:
    items = [str(number) for number in range(1000)]
    found = list(each(items, lambda item: [item, int(item) << 40, {"\udc80\n": None}]))
    assert found == [(item, [item, int(item) << 40, {"\udc80\n": None}]) for item in items]
    assert list(each([], lambda item: item)) == []


def for_ever() -> None:
    while True:
        pass


def test_work_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "ITEM_SECONDS", 0.5)
    assert "too long" in reason(for_ever)


def test_work_that_ignores_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "ITEM_SECONDS", 0.5)

    def sleep() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        signal.pause()

    assert "too long" in reason(sleep)


def test_work_that_takes_memory() -> None:
    assert "too much memory" in reason(lambda: len(bytes(2 * confined.MEMORY)))


def test_work_that_says_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "ANSWERS", 1 << 20)
    found = list(each(["a", "bad", "b", "c"], unless_bad(lambda: "x" * (1 << 20))))
    assert found[0] == ("a", "A")
    assert found[1][0] == "bad"
    assert "more than 1 MiB" in found[1][1].reason


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (os.abort, "SIGABRT"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: os._exit(3), "status 3"),
        (lambda: EMPTY["a"], "KeyError"),
        (lambda: object(), "TypeError"),
        (lambda: EMPTY[" " * 10_000], "KeyError"),
    ],
)
def test_readers_that_trip(act: Callable[[], Any], says: str) -> None:
    said = reason(act)
    assert says in said
    assert len(said) <= 200


def test_refusals_are_told_as_they_are() -> None:
    def refuse() -> None:
        raise UnusableFileError("it is no file")

    assert reason(refuse) == "it is no file"


def test_the_time_for_all_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined, "SECONDS", 0.5)
    found = list(each(["a", "bad", "b", "c"], unless_bad(for_ever)))
    assert found[0] == ("a", "A")
    assert [item for item, _ in found] == ["a", "bad"]
    assert found[1][1].untried == 2


def test_the_reader_has_nothing_of_its_parent(capfd: pytest.CaptureFixture[str]) -> None:
    source, sink = os.pipe()

    def look(_: str) -> list[str]:
        os.write(1, b"talk")
        os.write(2, b"talk")
        folder = Path("/proc/self/fd")
        return [str(link.readlink()) for link in folder.iterdir() if os.path.lexists(link)]

    ((_, found),) = each(["it"], look)
    os.close(source)
    os.close(sink)
    own = [link for link in found if link != "/dev/null"]
    assert len(own) == 1 and own[0].startswith("pipe:"), "more than what it answers through"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_reader_ends_with_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    """As by Ctrl-C, which goes to both of them; or when only the parent is killed."""
    os.mkfifo(tmp_path / "up")
    script = f"""if True:
        import os, time
        from pathlib import Path
        from reachscan.naming.confined import each
        def work(item):
            Path({str(tmp_path / "up")!r}).write_text(str(os.getpid()))
            while True:
                time.sleep(1000)
        list(each(["it"], work))
    """
    with subprocess.Popen(
        [sys.executable, "-c", script], start_new_session=True, stderr=subprocess.PIPE
    ) as parent:
        reader = os.pidfd_open(int((tmp_path / "up").read_text()))
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)
        else:
            parent.kill()
        poll = select.poll()
        poll.register(reader, select.POLLIN)
        assert poll.poll(1000 * DEADLINE), "the reader lives on"
        os.close(reader)
        assert parent.stderr is not None
        said = parent.stderr.read().decode()
        assert said.count("KeyboardInterrupt") == (number == signal.SIGINT)
        assert parent.wait(DEADLINE) == -number


def test_a_caller_that_has_closed_its_standard_streams() -> None:
    script = (
        "import os; from reachscan.naming.confined import each; "
        "os._exit(list(each(['it'], str.upper)) != [('it', 'IT')])"
    )
    done = subprocess.run(
        ["sh", "-c", f'exec {sys.executable} -c "{script}" <&- >&- 2>&-'], check=False
    )
    assert done.returncode == 0
