"""What must be as before when a recorder has been taken out of a process, and what it told."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from unharmed import last_words, layout, open_files
from victims import Victim, build, thread_states, wait_until

NO_FILE = ["00000000", "00:00", "0"]


def without_entries() -> dict[str, str]:
    """Return the environment of a program whose malloc and free cannot be hooked at their entries.

    The words are hooked instead that calls go through.
    """
    return {"LD_PRELOAD": str(build("unmovable", ("-shared", "-fPIC")))}


def imported_functions(pid: int) -> dict[str, bytes]:
    """Return the words through which each module calls functions, or lets others find its own."""
    found = {}
    memory = Path(f"/proc/{pid}/mem").open("rb", buffering=0)  # noqa: SIM115
    with memory:
        for line in layout(pid):
            addresses, _, offset, _, _, *path = line.split()
            if not path or int(offset, 16) != 0 or not path[0].startswith("/") or path[0] in found:
                continue
            with Path(path[0]).open("rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
                elf = ELFFile(file)
                base = int(addresses.split("-")[0], 16) if elf["e_type"] == "ET_DYN" else 0
                words = b""
                for name in (".got", ".got.plt", ".dynsym"):
                    if section := elf.get_section_by_name(name):
                        memory.seek(base + section["sh_addr"])
                        words += memory.read(section["sh_size"])
                found[path[0]] = words
    return found


def code(pid: int) -> list[bytes]:
    """Return the machine code of all files."""
    found = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in layout(pid):
            addresses, permissions, _, _, _, *path = line.split()
            if permissions != "r-xp" or not path or not path[0].startswith("/"):
                continue
            start, end = (int(address, 16) for address in addresses.split("-"))
            memory.seek(start)
            found.append(memory.read(end - start))
    return found


class Surroundings:
    """All of a process that must be as before."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._now()

    def _now(self) -> dict[str, Any]:
        return {
            "mappings": layout(self._pid),
            "files": open_files(self._pid),
            "threads": len(thread_states(self._pid)),
            "imported functions": imported_functions(self._pid),
            "code": code(self._pid),
        }

    def assert_same(self) -> None:
        now = self._now()
        for what, before in self._before.items():
            assert now[what] == before, what


def assert_served(victim: Victim) -> None:
    words = last_words(victim)
    assert words["errors"] == 0
    assert words["ticks"] > 0


def functions(report: dict[str, Any], group: dict[str, Any]) -> list[str]:
    if group["stack"] is None:
        return []
    return [frame["function"] for frame in report["stacks"][group["stack"]]]


def obey(program: Victim, word: str, answer: str | None = None) -> None:
    """Tell a program that answers most words by the same."""
    assert program.process.stdin
    program.process.stdin.write(f"{word}\n".encode())
    program.process.stdin.flush()
    assert program.read_line() == (word if answer is None else answer)


def is_being_recorded(pid: int) -> bool:
    """Tell whether a recorder is there and has hooked everything."""
    own = [line.split()[0] for line in layout(pid) if line.split()[1:] == ["rw-p", *NO_FILE]]
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for addresses in own:
            memory.seek(int(addresses.split("-")[0], 16))
            magic, _, hooked = struct.unpack("8sII", memory.read(16))
            if magic == b"RSATTACH":
                return bool(hooked)
    return False


def heed_hangups() -> None:
    """In a child: let SIGHUP have its usual effect."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def hunted(pid: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `where` until it is interrupted, without which the test would be ended as hung.

    It has begun to record, but perhaps not yet to wait.
    """
    command = [sys.executable, "-m", "reachscan", "where", str(pid), "--for", "1e6", "--json"]
    command += options
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_hangups,  # tests may run under nohup, which has SIGHUP ignored
    ) as where:
        wait_until(lambda: is_being_recorded(pid), "it is being recorded")
        yield where


def report_of_hunt(server: Victim, *options: str) -> dict[str, Any]:
    """Return what `where` finds while a server answers some more requests."""
    with hunted(server.pid, *options) as where:
        obey(server, "more")
        where.send_signal(signal.SIGINT)
        out, talk = where.communicate()
    assert where.returncode == 1, talk
    report: dict[str, Any] = json.loads(out)
    return report
