"""Small documents for programs that show or edit some."""

from __future__ import annotations

import struct
import wave
import zlib
from pathlib import Path

TEXT = "The quick brown fox jumps over the lazy dog. Zwölf Boxkämpfer jagen Viktor.\n"
C_SOURCE = '#include <stdio.h>\n\nint main(void) {\n  puts("hello");  // a comment\n}\n'


def write_all(folder: Path) -> None:
    """Write one of each kind: paper.pdf, picture.png, drawing.svg and so on."""
    (folder / "text.txt").write_text(TEXT * 60)
    (folder / "program.c").write_text(C_SOURCE * 20)
    (folder / "table.csv").write_text("".join(f"{i},{i * i},word {i}\n" for i in range(200)))
    (folder / "page.html").write_text(_page())
    (folder / "drawing.svg").write_text(_drawing())
    (folder / "picture.png").write_bytes(_picture(200))
    (folder / "paper.pdf").write_bytes(_paper(12))
    with wave.open(str(folder / "sound.wav"), "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
        sound.writeframes(b"".join(struct.pack("<h", i * 97 % 8000) for i in range(80_000)))


def _page() -> str:
    rows = "".join(f"<tr><td>{i}<td><b>row</b> <i>{i}</i>" for i in range(50))
    return f"<title>A page</title><h1>Heading</h1><p>{TEXT}<table border>{rows}</table>"


def _drawing() -> str:
    shapes = "".join(
        f'<circle cx="{20 * i}" cy="{i * i}" r="{i}" fill="none" stroke="blue"/>'
        f'<text x="10" y="{20 * i}" font-family="sans-serif">{TEXT[:30]}</text>'
        for i in range(1, 20)
    )
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="400" height="400">'
    return f'<?xml version="1.0"?>{head}{shapes}</svg>'


def _picture(side: int) -> bytes:
    rows = b"".join(b"\0" + bytes(x * y % 256 for x in range(3 * side)) for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _paper(pages: int) -> bytes:
    """Return a document of so many pages; its fonts are not embedded."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(pages))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Times-Roman >>",
    ]
    for page in range(pages):
        lines = f"BT /F 14 Tf 72 720 Td 18 TL (Page {page + 1}) Tj " + "T* (All is text) Tj " * 30
        stream = lines + " ET 1 0 0 RG 80 80 200 100 re S"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * page} 0 R"
            " /Resources << /Font << /F 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >> stream\n{stream}\nendstream")
    said, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(said))
        said += f"{number} 0 obj {text} endobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(said)}\n%%EOF\n"
    return f"{said}xref\n0 {size}\n0000000000 65535 f \n{table}{end}".encode()
