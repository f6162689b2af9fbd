"""Scans idle programs and checks each verdict by other means: python tests/verdicts.py [NAME ...].

Each leak that is reported is looked for in all memory and registers of the process, by
`evidence.py`, which shares nothing with reachscan. With --valgrind the same program does the same
work once more, under memcheck, which then searches at the same moment. Words that point into what
it calls lost are counted by why it passes over them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import evidence
import memcheck
import pytest
from idle_programs import COMMANDS, Stage
from idle_servers import SERVERS
from scans import leaked, scan

SCENES = {**COMMANDS, **SERVERS}
METHODS = ("clone", "copy")
BEFORE_VALGRIND = {
    # It wants to lower its limit of files, which valgrind refuses. This is its limit already: 64
    # connections, and 12 files for valgrind.
    "memcached": ("prlimit", "--nofile=76"),
}


@contextmanager
def stage(prefix: tuple[str, ...] = ()) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="reachscan-"))
    folder.chmod(0o777)
    try:
        yield Stage(folder, tuple(word.format(folder=folder) for word in prefix))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def pointing_words(pid: int, blocks: list[tuple[int, int]]) -> str:
    """Return where words are that point into one of the blocks, but for the blocks themselves."""
    found = evidence.look_for(pid, blocks)
    held = evidence.held_by_kernel(pid)
    held_count = sum(any(start <= v < start + size for v in held) for start, size in blocks)
    places: dict[str, int] = {"registers": sum(found.registers), "the kernel": held_count}
    for hits in found.memory:
        for hit in hits:
            if any(start <= hit.address < start + size for start, size in blocks):
                continue
            mapping = found.mapping_of(hit.address)
            place = "a dead stack" if found.is_dead(hit.address) else str(mapping and mapping.path)
            places[place] = places.get(place, 0) + 1
    return ", ".join(f"{count} in {place}" for place, count in places.items() if count) or "none"


def scanned(name: str) -> None:
    with stage() as where, SCENES[name](where) as processes:
        for what, pid in processes.items():
            for method in METHODS:
                report = scan(pid, "--all", "--method", method)
                leaks, pause = report["leaks"], report["snapshot"]["pause_us"] / 1000
                possible = leaks["possible_allocations"]
                blocks = [(int(address), int(size)) for address, size, _ in leaked(report)]
                words = pointing_words(pid, blocks) if blocks else ""
                columns = (what, method, report["heap"]["allocations"])
                counts = (leaks["allocations"] - possible, possible, f"{pause:.1f} ms", words)
                print("|", " | ".join(map(str, columns + counts)), "|", flush=True)


def checked(name: str) -> None:
    prefix = (*BEFORE_VALGRIND.get(name, ()), *memcheck.COMMAND)
    with stage(prefix) as where, SCENES[name](where) as processes:
        for what, pid in processes.items():
            client = memcheck.Client(pid, where.folder)
            said = client.search()
            log = Path(tempfile.gettempdir()) / f"verdict-{what.replace(' ', '-')}.txt"
            lost = client.lost_blocks(said)
            log.write_text(said)
            counts = memcheck.counts(said)
            assert len(lost) == counts["definitely lost"], f"it lists {len(lost)} lost: see {log}"
            words = client.passed_over(lost)
            columns = [f"{count} {kind}" for kind, count in counts.items()]
            columns.append(", ".join(f"{count}: {kind}" for kind, count in words.items()))
            print("|", " | ".join([what, "valgrind", *columns, str(log)]), "|", flush=True)


def give_up(number: int, frame: object) -> None:
    raise AssertionError("it took too long")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--valgrind", action="store_true", help="run them under valgrind instead")
    parser.add_argument("--seconds", type=int, default=240, help="what each of them may take")
    parser.add_argument("names", nargs="*", choices=[*SCENES, []], metavar="NAME")
    arguments = parser.parse_args()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    signal.signal(signal.SIGALRM, give_up)
    failures = (pytest.skip.Exception, AssertionError, OSError, subprocess.SubprocessError)
    for name in arguments.names or SCENES:
        signal.alarm(arguments.seconds)
        try:
            (checked if arguments.valgrind else scanned)(name)
        except failures as reason:
            print(f"| {name} | not done: {str(reason)[:300]} |", flush=True)


if __name__ == "__main__":
    main()
