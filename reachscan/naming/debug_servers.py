"""Fetches debug files from the servers that DEBUGINFOD_URLS names, as GDB and elfutils do.

Fetched files are cached where those tools cache them, and are checked like any other debug file:
they are used only if they have the requested build id.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from reachscan.naming import elf_files
from reachscan.naming.untrusted_files import Root, UnusableFileError, open_below
from reachscan.recording import model

URLS = "DEBUGINFOD_URLS"
_KEPT = "debuginfo"
_NOT_FOUND = 404
_CHUNK = 1 << 20
_STALLED_SECONDS = 90.0
_MAX_SECONDS = 300.0
_LARGEST = 4 << 30

_missing: set[tuple[str, bytes]] = set()
"""Files that servers do not have: repeated reports do not ask for them again."""


def kept(build_id: bytes) -> tuple[Root, str] | None:
    """Return the path of a module's debug file in the cache; it may be missing."""
    if not _servers() or not build_id:
        return None
    return Root(_folder(), os.geteuid()), f"{build_id.hex()}/{_KEPT}"


def fetch(build_ids: Iterable[bytes]) -> Iterator[model.Warning]:
    """Fetch missing debug files of modules, and the files that these share.

    Yields:
        Why a server did not answer. "No such file" is an answer.
    """
    failures: dict[str, str] = {}
    for build_id in filter(None, build_ids) if _servers() else ():
        shared = _shared_id(build_id) if _fetch_one(build_id, failures) else b""
        if shared:
            _fetch_one(shared, failures)
    for server, reason in failures.items():
        yield model.Warning("debug-server", f"no debug files come from {server}: {reason}")


def _servers() -> list[str]:
    urls = os.environ.get(URLS, "").split()
    return [url.rstrip("/") for url in urls if url.startswith(("http://", "https://"))]


def _folder() -> Path:
    own = os.environ.get("DEBUGINFOD_CACHE_PATH")
    caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(own) if own else Path(caches, "debuginfod_client")


def _setting(name: str, default: float) -> float:
    text = os.environ.get(f"DEBUGINFOD_{name}", "")
    return float(text) if text.isascii() and text.isdigit() and int(text) else default


def _fetch_one(build_id: bytes, failures: dict[str, str]) -> bool:
    """Return whether the file is here now; a server that failed is not asked again."""
    name = f"{build_id.hex()[:2]}/{build_id.hex()[2:]}.debug"
    # These are slow to load, and most machines name no server.
    from http.client import HTTPException
    from urllib.error import HTTPError

    path = _folder() / build_id.hex() / _KEPT
    if Path("/usr/lib/debug/.build-id", name).exists():
        return False
    for server in _servers():
        if path.exists():
            return True
        if server in failures or (server, build_id) in _missing:
            continue
        try:
            _download(f"{server}/buildid/{build_id.hex()}/debuginfo", path)
        except HTTPError as error:
            if error.code == _NOT_FOUND:
                _missing.add((server, build_id))
            else:
                failures[server] = f"it answers with status {error.code}"
        except (OSError, HTTPException) as error:
            failures[server] = str(getattr(error, "reason", error)) or type(error).__name__
    return path.exists()


def _download(url: str, path: Path) -> None:
    """Move a file to its place once it is complete.

    Raises:
        OSError: the server cannot be reached or takes too long, or the disk is full.
        HTTPException: the server violates the protocol.
    """
    import urllib.request

    end = time.monotonic() + _setting("MAXTIME", _MAX_SECONDS)
    left = int(_setting("MAXSIZE", _LARGEST))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    request = urllib.request.Request(url, headers={"User-Agent": "reachscan"})
    stalled = _setting("TIMEOUT", _STALLED_SECONDS)
    with (
        tempfile.NamedTemporaryFile(dir=path.parent, prefix=".") as file,
        urllib.request.urlopen(request, timeout=stalled) as answer,
    ):
        expected = answer.headers.get("Content-Length")
        while chunk := answer.read(_CHUNK):
            left -= len(chunk)
            if left < 0 or time.monotonic() > end:
                raise OSError("a file is too large, or takes too long")
            file.write(chunk)
        file.flush()
        if expected and int(expected) != file.tell():
            raise OSError("it sends only a part of a file")
        path.unlink(missing_ok=True)
        os.link(file.name, path)


def _shared_id(build_id: bytes) -> bytes:
    """Return the id of the file that a fetched one shares parts with, if there is one."""
    place = kept(build_id)
    if place is None:
        return b""
    try:
        with ExitStack() as stack:
            elf = stack.enter_context(elf_files.opened(partial(open_below, *place)))
            return elf_files.supplement(elf)[1]
    except UnusableFileError:
        return b""  # it cannot serve as a debug file, either
