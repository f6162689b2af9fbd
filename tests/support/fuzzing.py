"""Damages good input in ways that a number decides, for as long as it may."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("REACHSCAN_FUZZ_SECONDS", "3"))
ONLY = os.environ.get("REACHSCAN_FUZZ_INPUT")
MOST_SECONDS_PER_INPUT = 5.0
"""Of the processor's time, which no other load adds to."""
MOST_MEMORY = 1 << 30
"""Bytes that reading an input may take beyond what the test has already."""
EXTREMES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 47, 1 << 63)


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Return the input with a few numbers, bytes or stretches of it changed."""
    out = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(max(len(out), 1))
        kind = chance.randrange(6)
        if kind == 0:
            out[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            width = chance.choice((1, 2, 4, 8))
            value = (chance.choice(EXTREMES) + chance.randrange(-2, 3)) % (1 << 8 * width)
            out[at : at + width] = value.to_bytes(width, "little")
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + chance.randrange(64)]
        elif kind == 4:
            out[at:at] = out[at : at + chance.randrange(64)]
        else:
            source = chance.randrange(max(len(out), 1))
            length = chance.randrange(64)
            out[at : at + length] = out[source : source + length]
    return bytes(out)


def inputs(
    corpus: Sequence[bytes], change: Callable[[bytes, random.Random], bytes] = damaged
) -> Iterator[tuple[int, bytes]]:
    """Yield numbered inputs until the time is over, or the one that the environment asks for."""
    end = time.monotonic() + SECONDS
    number = int(ONLY or 0)
    while ONLY is not None or time.monotonic() < end:
        chance = random.Random(number)
        yield number, change(chance.choice(corpus), chance)
        if ONLY is not None:
            return
        number += 1


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let what takes too much memory raise MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def survives(
    corpus: Sequence[bytes],
    read: Callable[[bytes], object],
    refusals: tuple[type[Exception], ...],
    change: Callable[[bytes, random.Random], bytes] = damaged,
) -> int:
    """Read damaged inputs, all failures but refusals being ours; return how many were refused."""
    tried = refused = 0
    for number, raw in inputs(corpus, change):
        tried += 1
        began = time.process_time()
        try:
            with limited_memory():
                read(raw)
        except refusals:
            refused += 1
        except Exception as error:
            pytest.fail(f"input {number} (REACHSCAN_FUZZ_INPUT={number}): {error!r}")
        took = time.process_time() - began
        assert took < MOST_SECONDS_PER_INPUT, f"input {number} took {took:.1f} s"
    print(f"{tried} inputs, {refused} refused")
    return refused
