"""Has valgrind's memcheck search a program that runs under it, and finds what it passes over."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import evidence

from reachscan.recording.zip_equal import zip_equal

COMMAND = (
    *("valgrind", "-q", "--vgdb-prefix={folder}/vgdb", "--trace-children=yes"),
    "--trace-children-skip=*/bash,*/dash,*/sh",  # what a server starts for others
)
KINDS = ("definitely lost", "indirectly lost", "possibly lost", "still reachable")

_RECORD = re.compile(
    r"== ([\d,]+) (?:\(.*?\) )?bytes in ([\d,]+) blocks are (\w+ \w+) in loss record ([\d,]+) "
)
_BLOCK = re.compile(r"^==\d+== (0x[0-9A-F]+)\[(\d+)\]$", re.MULTILINE)
_DEFINEDNESS = re.compile(r"^([0-9a-f_]{8} [0-9a-f_]{8}) *$", re.MULTILINE)
_AS_TRACER = ("--clear-groups", "--inh-caps=+sys_ptrace", "--ambient-caps=+sys_ptrace")
_OWN_MEMORY = range(0x1000000000, 0x1FF0000000)
"""Where valgrind keeps its own data; the program's stack is above."""

Blocks = Sequence[tuple[int, int]]
"""Address and size as requested, ascending."""


@dataclass(frozen=True)
class Client:
    """A process under memcheck."""

    pid: int
    folder: Path
    """What `{folder}` stood for in COMMAND."""

    def search(self) -> str:
        """Return what memcheck says of all blocks, and their addresses.

        Both are asked for in one go: its records do not outlive what the program does meanwhile.
        """
        return self._ask("leak_check summary reachable any", "block_list 1..1000000 unlimited")

    def passed_over(self, blocks: Blocks) -> Counter[str]:
        """Count the blocks by the words that point into them and that memcheck passes over."""
        counts: Counter[str] = Counter()
        if not blocks:
            return counts
        usable = [(address, usable_size(size)) for address, size in blocks]
        found = evidence.look_for(self.pid, usable)
        for (address, size), hits in zip_equal(blocks, found.memory):
            kinds = set()
            for hit in hits:
                mapping = found.mapping_of(hit.address)
                tool = hit.address in _OWN_MEMORY or "memcheck" in (mapping.path if mapping else "")
                if not tool and not address <= hit.address < address + size:
                    kinds.add(self._kind(hit, size))
            counts[" and ".join(sorted(kinds - {"freed"})) or "no word"] += 1
        return counts

    def _kind(self, hit: evidence.Hit, size: int) -> str:
        if hit.address % 8 != 0:
            return "unaligned"
        if hit.offset >= size:
            return "behind the requested end"
        (bits,) = _DEFINEDNESS.findall(self._ask(f"get_vbits {hit.address:#x} 8"))
        return "freed" if "_" in bits else "defined" if set(bits) == {"0", " "} else "undefined"

    def _ask(self, *requests: str) -> str:
        pipes = self.folder / "vgdb"
        command = ["vgdb", f"--vgdb-prefix={pipes}", f"--pid={self.pid}"]
        command += [word for request in requests for word in ("-c", *request.split())]
        status = Path(f"/proc/{self.pid}/status").read_text()
        user = int(re.findall(r"Uid:\s+(\d+)", status)[0])
        if user != os.geteuid():
            # A client of another user is one that it cannot send signals to, so it is dead to it.
            command = ["setpriv", f"--reuid={user}", *_AS_TRACER, *command]
            # What has changed its user since it was forked could not open its own pipes.
            for pipe in self.folder.glob(f"{pipes.name}-*-{self.pid}-*"):
                os.chown(pipe, user, -1)
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def lost_blocks(said: str) -> Blocks:
    """Return what it called definitely lost; only these, not what hangs below them."""
    records = [*_RECORD.finditer(said)]
    ends = [record.start() for record in records[1:]] + [len(said)]
    listed = [
        _BLOCK.findall(said, record.end(), end)
        for record, end in zip(records, ends)
        if record[3] == KINDS[0]
    ]
    return sorted((int(address, 16), int(size)) for blocks in listed for address, size in blocks)


def counts(said: str) -> dict[str, int]:
    """Return the number of blocks by what it called them."""
    blocks = dict.fromkeys(KINDS, 0)
    for _, count, kind, _ in _RECORD.findall(said):
        blocks[kind] += int(count.replace(",", ""))
    return blocks


def usable_size(requested: int) -> int:
    """Return what malloc of glibc would have given: reachscan knows no other size."""
    return max(24, (requested + 8 + 15) // 16 * 16 - 8)
