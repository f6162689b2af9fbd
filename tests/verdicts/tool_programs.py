"""Command line tools that wait for more of their input."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from idle_programs import Processes, Scene
from programs import program
from staging import Fed
from victims import need, wait_until

ROWS = b"".join(b'{"id": %d, "name": "n%d", "tags": ["a", "b"]}\n' % (i, i) for i in range(2000))
GRAPHS = b"".join(
    b"digraph g%d { node [shape=box]; subgraph cluster_1 { a -> b; } %s }\n"
    % (k, b" ".join(b"n%d -> n%d [label=x%d];" % (i, i * 7 % 20, i) for i in range(20)))
    for k in range(20)
)
SAMPLES = struct.pack("<20000h", *(int(i * 37 % 9999) for i in range(20000)))
PLOT = b"""set terminal svg; set output 'a.svg'; set samples 500
plot sin(x), cos(x) title 'c'; set terminal dumb; splot x*y; f(x) = a*x; fit f(x) '-' via a
1 2
2 4
3 6
e
print "up"
"""
GHOST = b"""/Helvetica findfont 20 scalefont setfont 9 9 moveto (hello) show showpage
1 1 500 { dup string pop } for (up) print flush
"""
SHELL = b"cat //a[@i='7']\nxpath count(//a)\nls\ncd //r\ngrep text\necho up\n"

LLDB = b"""image list
settings show
target create /bin/ls
image lookup -n main
disassemble -n main
breakpoint set -n malloc
"""
QALC = b"5 km + 3 miles\nsolve(x^2 = 4)\nfactor(x^4 - 1)\nintegrate(sin(x))\n10!\n"
CALC = b"""define f(n) = n < 2 ? 1 : n * f(n - 1);
f(50)
mat A[3, 3];
print factor(2^67 - 1)
"""
GRETL = b"nulldata 50\ngenr x = normal()\ngenr y = x + normal()\nols y const x\n"
COQ = b"""Require Import Arith List. Lemma a: forall n m, n + m = m + n. Proof. intros; ring. Qed.
Fixpoint f n := match n with 0 => 1 | S k => n * f k end. Compute f 6. Print a. Print nat.
"""
LUATEX = rb"""\catcode`\{=1 \catcode`\}=2
\directlua{local t = {} for i = 1, 5000 do t[i] = {i, 'v' .. i} end print('up')}
"""
SOURCE = """#include <map>
#include <string>
int main() { std::map<std::string, int> m; m["a"] = 1; return m.size(); }
"""


def messages(*calls: tuple[str, dict[str, object]]) -> bytes:
    """Return calls of a language server as it reads them, numbered if they are to be answered."""
    pieces = []
    for number, (method, params) in enumerate(calls, 1):
        call = {"jsonrpc": "2.0", "method": method, "params": params}
        text = json.dumps(call if "/did" in method else {**call, "id": number}).encode()
        pieces.append(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
    return b"".join(pieces)


FILE = {"uri": "file:///tmp/idle.cpp", "languageId": "cpp", "version": 1, "text": SOURCE}
CLANGD = messages(
    ("initialize", {"processId": None, "rootUri": None, "capabilities": {}}),
    ("textDocument/didOpen", {"textDocument": FILE}),
    ("textDocument/hover", {"textDocument": FILE, "position": {"line": 2, "character": 40}}),
)


@contextmanager
def full_pipe(package: str, command: list[str]) -> Iterator[Processes]:
    """Stop a program in the middle of its work: nobody reads its output."""
    with program([need(command[0], package), *command[1:]], stdout=subprocess.PIPE) as process:
        tasks = Path(f"/proc/{process.pid}/task")

        def call_of(task: Path) -> str:
            try:
                return (task / "syscall").read_text()
            except (FileNotFoundError, ProcessLookupError):  # the thread ended just now
                return ""

        def is_full() -> bool:
            return any(call_of(task).startswith(("1 0x1 ", "20 0x1 ")) for task in tasks.iterdir())

        wait_until(is_full, "the pipe is full")
        yield {command[0]: process.pid}


def into_full_pipe(package: str, *command: str) -> Scene:
    return lambda stage: full_pipe(package, [word.replace("{here}", HERE) for word in command])


HERE = str(Path(__file__).resolve().parents[2])
TOOLS: dict[str, Scene] = {
    "jq": Fed(
        "jq",
        ("jq", "-c", "--unbuffered", "{id, t: .tags[0], n: (.name | ascii_upcase)}"),
        ROWS,
        b'"id":1999',
    ),
    "dot": Fed("graphviz", ("dot", "-Tsvg"), GRAPHS, b"g0"),
    "neato": Fed(
        "graphviz", ("neato", "-Tplain"), GRAPHS.replace(b"digraph", b"graph").replace(b"->", b"--")
    ),
    "gnuplot": Fed("gnuplot-nox", ("gnuplot",), PLOT, b"up"),
    "ghostscript": Fed(
        "ghostscript",
        ("gs", "-q", "-sDEVICE=ppmraw", "-dNOPAUSE", "-sOutputFile=page%d"),
        GHOST,
        b"up",
    ),
    "xmllint": Fed(
        "libxml2-utils",
        ("xmllint", "--shell", "/usr/share/mime/packages/freedesktop.org.xml"),
        SHELL,
    ),
    "ffmpeg": Fed(
        "ffmpeg",
        (
            *(
                "ffmpeg",
                "-loglevel",
                "info",
                "-f",
                "s16le",
                "-ar",
                "8000",
                "-ac",
                "1",
                "-i",
                "pipe:0",
            ),
            *(
                "-filter_complex",
                "aecho,showwaves=s=160x120",
                "-c:v",
                "mpeg4",
                "-y",
                "{folder}/a.mkv",
            ),
        ),
        SAMPLES * 8,
    ),
    "sox": Fed(
        "sox",
        (
            "sox",
            "-t",
            "raw",
            "-r",
            "8000",
            "-e",
            "signed",
            "-b",
            "16",
            "-c",
            "1",
            "-",
            "a.wav",
            "reverb",
            "pitch",
            "100",
        ),
        SAMPLES * 4,
    ),
    "sed": Fed("sed", ("sed", "-u", "-E", "s/([a-z]+)[0-9]+/<\\1>/g; /x$/d"), ROWS, b"tags"),
    "gpg-agent": Fed(
        "gpg-agent",
        ("gpg-agent", "--server", "--homedir", "{folder}"),
        b"GETINFO version\nHELP\nKEYINFO --list\n",
        b"OK",
    ),
    "sftp-server": Fed(
        "openssh-sftp-server", ("/usr/lib/openssh/sftp-server",), struct.pack(">IBI", 5, 1, 3)
    ),
    "hg cmdserver": Fed(
        "mercurial",
        ("hg", "serve", "--cmdserver", "pipe"),
        b"getencoding\nruncommand\n" + struct.pack(">I", 7) + b"version",
    ),
    "svnserve tunnel": Fed("subversion", ("svnserve", "-t"), b"", b"( success"),
    "find": into_full_pipe("findutils", "find", "/usr", "-name", "*a*", "-printf", "%p %s %u\\n"),
    "objdump": into_full_pipe(
        "binutils", "objdump", "-dCl", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"
    ),
    "tshark": into_full_pipe("tshark", "tshark", "-G", "fields"),
    "exiftool": into_full_pipe("libimage-exiftool-perl", "exiftool", "-listx"),
    "convert": into_full_pipe(
        "imagemagick",
        "convert",
        "-size",
        "800x800",
        "plasma:red-blue",
        "-blur",
        "3x3",
        "-font",
        "DejaVu-Sans",
        "png:-",
    ),
    "cmake": into_full_pipe("cmake", "cmake", "--help-full"),
    "curl": into_full_pipe("curl", "curl", "-s", "file:///usr/bin/python3.11", "-o", "-"),
    "zstd": into_full_pipe("zstd", "zstd", "-T2", "-19", "-c", "/usr/lib/x86_64-linux-gnu/libc.a"),
    "tar": into_full_pipe("tar", "tar", "cf", "-", "/usr/include"),
    "dpkg-query": into_full_pipe("dpkg", "dpkg-query", "-W", "-f", "${Package} ${Description}\\n"),
    "apt-cache": into_full_pipe("apt", "apt-cache", "dumpavail"),
    "lldb": Fed("lldb", ("lldb", "--no-lldbinit"), LLDB, b"malloc"),
    "clangd": Fed("clangd", ("clangd",), CLANGD, b'"id":3'),
    "qalc": Fed("qalc", ("qalc", "-t"), QALC),
    "calc": Fed("apcalc", ("calc",), CALC),
    "ngspice": Fed("ngspice", ("ngspice", "-p"), b"let x = vector(100)\nprint mean(x)\necho up\n"),
    "ledger": Fed("ledger", ("ledger", "-f", "/dev/null"), b"accounts\nbal\n"),
    "gretl": Fed("gretl", ("gretlcli",), GRETL),
    "gprolog": Fed("gprolog", ("gprolog",), b"findall(X, between(1, 5000, X), L), length(L, N).\n"),
    "coqtop": Fed("coq", ("coqtop",), COQ, b"nat"),
    "luatex": Fed("texlive-binaries", ("luatex", "--ini"), LUATEX, b"up"),
    "fluidsynth": Fed(
        "fluidsynth",
        ("fluidsynth", "-a", "file", "-o", "audio.file.name={folder}/out.raw"),
        b"help\nfonts\nset\nchannels\n",
        b"help",
    ),
    "puredata": Fed("puredata-core", ("puredata", "-nogui", "-nosound", "-stdpath"), b""),
    "qemu": Fed(
        "qemu-system-x86",
        (
            *("qemu-system-x86_64", "-display", "none", "-m", "64", "-monitor", "stdio"),
            *("-device", "e1000", "-device", "ich9-ahci"),
        ),
        b"info mtree\ninfo qtree\ninfo cpus\ninfo block\ninfo qom-tree\n",
        b"qemu",
    ),
}
