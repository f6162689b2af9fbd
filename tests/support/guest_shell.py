"""Connects stdin and stdout to the shell of an emulated machine, until either of them ends.

guest_shell.py SOCKET sh
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable


def carry(read: Callable[[], bytes], write: Callable[[bytes], object]) -> None:
    try:
        while piece := read():
            write(piece)
    finally:
        os._exit(0)


def main() -> None:
    line = socket.socket(socket.AF_UNIX)
    line.connect(sys.argv[1])
    upwards = (lambda: os.read(0, 1 << 16), line.sendall)
    threading.Thread(target=carry, args=upwards, daemon=True).start()
    with open(1, "wb", buffering=0) as stdout:
        carry(lambda: line.recv(1 << 16), stdout.write)


if __name__ == "__main__":
    main()
