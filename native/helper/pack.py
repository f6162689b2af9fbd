"""Packs images for the helper: `pack.py OUTPUT IMAGE...` (helper/images.cpp unpacks them).

A call on x86 (0xe8) holds the distance to a function, which differs from call to call. It is packed
as the place of the function in the image, modulo 2^25, so that calls of one function are alike.
Distances of more bits are left as they are. On other processors the byte is rare.
"""

import struct
import sys
from itertools import accumulate
from pathlib import Path

import zstandard

CALL = 0xE8
CALL_BYTES = 5
MODULUS = 1 << 25


def with_places(image: bytes) -> bytes:
    """Replace the distances in calls by places."""
    out = bytearray(image)
    at = out.find(CALL)
    while 0 <= at <= len(out) - CALL_BYTES:
        after = at + CALL_BYTES
        distance = int.from_bytes(out[at + 1 : after], "little", signed=True)
        if -(MODULUS // 2) <= distance < MODULUS // 2:
            place = (distance + after + MODULUS // 2) % MODULUS - MODULUS // 2
            out[at + 1 : after] = place.to_bytes(CALL_BYTES - 1, "little", signed=True)
        at = out.find(CALL, after)
    return bytes(out)


images = [with_places(Path(name).read_bytes()) for name in sys.argv[2:]]
ends = list(accumulate(len(image) for image in images))
best = zstandard.ZstdCompressionParameters.from_level(22, source_size=ends[-1])
# They resemble each other, so they are packed as one. What unpacks them reads some bytes too far.
packed = zstandard.ZstdCompressor(compression_params=best).compress(b"".join(images)) + bytes(8)
Path(sys.argv[1]).write_bytes(struct.pack(f"<{len(ends)}I", *ends) + packed)
