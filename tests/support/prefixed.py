"""Allocators as programs bundle them: linked in, with a prefix before all names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from victims import BUILD, need

CALLS = (
    *("malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc", "memalign"),
    *("valloc", "malloc_usable_size"),
)
"""What fixture programs call, and what else an archive defines in place of libc."""


def bundled(archive: str, prefix: str) -> list[str]:
    """Return options of the compiler for a stripped program that has its blocks from an archive.

    libc keeps its own malloc, so nothing in the program defines a function of that name.

    Args:
        archive: the allocator's static library, with the names of libc.
        prefix: what stands before these names in the program.
    """
    renamed = BUILD / "bundled" / f"{prefix}{Path(archive).name}"
    renamed.parent.mkdir(parents=True, exist_ok=True)
    unfinished = renamed.with_suffix(f".{os.getpid()}")
    names = [word for call in CALLS for word in ("--redefine-sym", f"{call}={prefix}{call}")]
    subprocess.run(
        [need("objcopy", "binutils"), *names, archive, str(unfinished)], check=True, timeout=60
    )
    unfinished.rename(renamed)
    calls = [f"-D{call}={prefix}{call}" for call in CALLS]
    return [*calls, str(renamed), "-s", "-lstdc++", "-lm"]
