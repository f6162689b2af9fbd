"""Packs images for the helper: `pack.py OUTPUT IMAGE...` (helper/images.hpp reads it)."""

import struct
import sys
from itertools import accumulate
from pathlib import Path

import zstandard

images = [Path(name).read_bytes() for name in sys.argv[2:]]
ends = list(accumulate(len(image) for image in images))
best = zstandard.ZstdCompressionParameters.from_level(22, source_size=ends[-1])
# They resemble each other, so they are packed as one. What unpacks them reads some bytes too far.
packed = zstandard.ZstdCompressor(compression_params=best).compress(b"".join(images)) + bytes(8)
Path(sys.argv[1]).write_bytes(struct.pack(f"<{len(ends)}I", *ends) + packed)
