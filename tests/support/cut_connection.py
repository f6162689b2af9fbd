"""Stands between reachscan and what starts a shell, and cuts the connection at a chosen moment.

    cut_connection.py TOTALS UP DOWN COMMAND...

Kills COMMAND, and itself, when UP bytes have gone to it or DOWN bytes have come from it; 0 is
never. TOTALS is a file that gets both numbers if it ends before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path


class Relay:
    """Carries bytes both ways, no more than it may."""

    def __init__(self, most: tuple[int, int], command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.most = most
        self.passed = [0, 0]

    def carry(self, source: int, sink: int, way: int) -> None:
        while piece := os.read(source, 1 << 12):
            left = self.most[way] - self.passed[way] if self.most[way] else len(piece)
            piece = piece[:left]
            self.passed[way] += len(piece)
            try:
                os.write(sink, piece)
            except BrokenPipeError:
                break
            if self.passed[way] == self.most[way]:
                self.process.kill()
                os.kill(os.getpid(), signal.SIGKILL)
        os.close(sink)


def main() -> None:
    totals, up, down, *command = sys.argv[1:]
    relay = Relay((int(up), int(down)), command)
    assert relay.process.stdin is not None and relay.process.stdout is not None
    upwards = threading.Thread(target=relay.carry, args=(0, relay.process.stdin.fileno(), 0))
    upwards.daemon = True
    upwards.start()
    relay.carry(relay.process.stdout.fileno(), 1, 1)
    status = relay.process.wait()
    whole = Path(f"{totals}.new")
    whole.write_text(f"{relay.passed[0]} {relay.passed[1]}")
    whole.rename(totals)  # its reader waits until it is there
    os._exit(status)


if __name__ == "__main__":
    main()
