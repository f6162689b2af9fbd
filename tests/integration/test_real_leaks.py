"""Bugs of programs that people run, as Debian 12 ships them: what is lost is found and named."""

from __future__ import annotations

import subprocess

import pytest
from programs import assert_says, program, unread_bytes
from scans import scan
from victims import need, wait_blocked, wait_until

COUNT = 1000


def test_jq_leaks() -> None:
    jq = need("jq", "jq")
    version = subprocess.run([jq, "--version"], capture_output=True, text=True, check=True).stdout
    if version.strip() != "jq-1.6":
        pytest.skip(f"the leak is that of jq 1.6; this is {version.strip()}")
    with program([jq, "-c", 'ltrimstr("x")']) as process:
        assert process.stdin is not None
        pipe = process.stdin.fileno()
        process.stdin.write(b"1\n" * 100_000)
        process.stdin.flush()
        wait_until(lambda: unread_bytes(pipe) == 0, "jq has read its input")
        wait_blocked(process.pid)
        report = scan(process.pid)
        leaks = report["leaks"]
        indirect = leaks["allocations"] - leaks["direct_allocations"]
        assert leaks["direct_allocations"] == pytest.approx(100_000, rel=0.01)
        assert indirect == pytest.approx(100_000, rel=0.01)
        # Among so many, a word may look like the distance to one by chance.
        definite = [g for g in report["groups"] if g["confidence"] == "definite"]
        assert len(definite) in (1, 2)
        assert sum(g["allocations"] for g in definite) >= leaks["direct_allocations"] - 10


PYTHON = """
import ctypes
keep = ctypes.pythonapi.Py_IncRef
for number in range(1000):
    keep(ctypes.py_object(b"%04d" % number + bytes(996)))
print("up", flush=True)
input()
"""


def test_python_references_that_nobody_drops() -> None:
    """Not all: stale words in memory that Python manages itself look like pointers."""
    with program([need("python3", "python3"), "-c", PYTHON], stdout=subprocess.PIPE) as process:
        assert_says(process, b"up\n")
        wait_blocked(process.pid)
        groups = [g for g in scan(process.pid)["groups"] if "PyBytes_Type" in g["signature"]]
        assert sum(g["allocations"] for g in groups) == pytest.approx(COUNT, rel=0.05)
        assert groups[0]["confidence"] == "definite"
        assert groups[0]["allocations"] == pytest.approx(COUNT, rel=0.05)


RUBY = """
text = "hello world".encode(Encoding::UTF_32LE)
1000.times { text.grapheme_clusters }
puts "up"; $stdout.flush
gets
"""


def test_ruby_regular_expressions_of_other_encodings() -> None:
    """Ruby bug 20150: String#grapheme_clusters of a string that is no UTF-8 loses a regex_t."""
    ruby = need("ruby", "ruby")
    version = subprocess.run([ruby, "--version"], capture_output=True, text=True, check=True).stdout
    if not version.startswith("ruby 3.1."):
        pytest.skip(f"the bug is that of ruby 3.1; this is {version.strip()}")
    with program([ruby, "-e", RUBY], stdout=subprocess.PIPE) as process:
        assert_says(process, b"up\n")
        wait_blocked(process.pid)
        groups = scan(process.pid)["groups"]
        lost = sum(g["allocations"] for g in groups if g["size"] in (456, 472))
        assert lost == pytest.approx(COUNT, rel=0.1)
