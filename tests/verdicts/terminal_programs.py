"""Programs at a terminal: editors, shells' helpers, readers and talkers, after some keys."""

from __future__ import annotations

from pathlib import Path

from idle_programs import Scene
from staging import Typed

LINES = "".join(f"line {i} of the text, with some words in it: {i * i}\n" for i in range(2000))
PAGE = (
    "<html><title>t</title><body><h1>Hello</h1>"
    + "".join(f"<p><a href='#{i}'>link {i}</a> and <b>text</b></p>" for i in range(300))
    + "<table>"
    + "<tr><td>a</td><td>b</td></tr>" * 50
    + "</table></body></html>"
)
MAIL = "".join(
    f"From ada@example.org Thu Jan  1 00:00:{i % 60:02} 2026\nFrom: ada@example.org\n"
    f"Subject: number {i}\nMessage-ID: <{i}@t>\n\nhello {i}\n\n"
    for i in range(100)
)
FEED = (
    "<rss version='2.0'><channel><title>t</title>"
    + "".join(
        f"<item><title>item {i}</title><guid>{i}</guid><description>text</description></item>"
        for i in range(100)
    )
    + "</channel></rss>"
)
TEXT = (("text.py", LINES),)
DOWN, ESCAPE, RETURN, TAB, CTRL_X = b"\x1b[B", b"\x1b", b"\r", b"\t", b"\x18"


def changed(folder: Path) -> bool:
    """Say whether the editor has saved what was typed."""
    return "hello" in (folder / "text.py").read_text()


TERMINALS: dict[str, Scene] = {
    "nano": Typed(
        "nano",
        ("nano", "--ignorercfiles", "text.py"),
        (b"hello\r", b"\x0b\x15", b"\x0f", RETURN),
        TEXT,
        b"line 0",
        changed,
    ),
    "emacs": Typed(
        "emacs-nox",
        ("emacs", "-nw", "-Q", "text.py"),
        (
            b"hello\r",
            b"\x1b>",
            b"\x0b\x19\x19",
            CTRL_X + b"3",
            CTRL_X + b"\x13",
            b"\x1bxcount-words\r",
        ),
        TEXT,
        b"line 0",
        changed,
    ),
    "joe": Typed(
        "joe", ("joe", "text.py"), (b"hello\r", b"\x19", b"\x0bd", RETURN), TEXT, b"line 0", changed
    ),
    "neovim": Typed(
        "neovim",
        (
            *("nvim", "--clean", "-n", "text.py", "-c", "normal ohello", "-c", "vsplit"),
            *("-c", "%s/words/things/g", "-c", "syntax on", "-c", "write"),
        ),
        (),
        TEXT,
        worked=changed,
    ),
    "ed": Typed(
        "ed", ("ed", "text.py"), (b",s/words/hello/\r", b"1,5m$\r", b"w\r"), TEXT, b"", changed
    ),
    "less": Typed("less", ("less", "text.py"), (b"G", b"g", b"/line 99\r", b"n", b"50%"), TEXT),
    "mc": Typed("mc", ("mc", "-u", "-x"), (DOWN, TAB, b"ls\r", b"\x0f", b"\x0f", b"\x1b3")),
    "htop": Typed("htop", ("htop", "-d", "100"), (DOWN, b"t", b"\x1b[15~")),
    "top": Typed("procps", ("top", "-d", "60"), (b"1", b"V", b"c")),
    "w3m": Typed(
        "w3m", ("w3m", "page.html"), (TAB, RETURN, b"/text\r", b"="), (("page.html", PAGE),)
    ),
    "lynx": Typed("lynx", ("lynx", "page.html"), (DOWN, b"\\", b"\\"), (("page.html", PAGE),)),
    "elinks": Typed(
        "elinks", ("elinks", "page.html"), (RETURN, DOWN, b"\\"), (("page.html", PAGE),)
    ),
    "irssi": Typed(
        "irssi", ("irssi", "--home={folder}"), (b"/help\r", b"/alias\r", b"/window new\r")
    ),
    "weechat": Typed(
        "weechat-curses", ("weechat", "-d", "{folder}"), (b"/help buffer\r", b"/set *nick*\r")
    ),
    "mutt": Typed(
        "mutt",
        ("mutt", "-n", "-F", "/dev/null", "-f", "box"),
        (b"=", b"l~s 7\r", b"oa"),
        (("box", MAIL),),
    ),
    "newsboat": Typed(
        "newsboat",
        ("newsboat", "-u", "urls", "-c", "cache.db", "-C", "/dev/null"),
        (b"R", RETURN, RETURN, b"q"),
        (("urls", "file://./feed.xml\n"), ("feed.xml", FEED)),
    ),
    "tig": Typed("tig", ("tig", "-C", str(Path(__file__).parent)), (DOWN, RETURN, b"q", b"t")),
    "ncdu": Typed("ncdu", ("ncdu", "-0", "/usr/include"), (DOWN, RETURN, b"n")),
    "screen": Typed(
        "screen", ("screen", "-c", "/dev/null", "-S", "t", "sh"), (b"seq 300\r", b"\x01c", b"\x01S")
    ),
    "cmus": Typed("cmus", ("cmus", "--listen", "{folder}/socket"), (b"5", b"7", b":add .\r")),
    "rtorrent": Typed(
        "rtorrent", ("rtorrent", "-n", "-o", "network.port_range.set=45000-45999"), (DOWN, b"9")
    ),
    "bash at a terminal": Typed(
        "bash", ("bash", "--norc", "-i"), (b"ls /us\t\r", b"\x1b[A\r", b"x=1\r")
    ),
}
