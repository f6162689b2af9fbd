"""Lines of programs whose debug information lies on a server, as DEBUGINFOD_URLS names some."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import victims
from elftools.elf.elffile import ELFFile

from reachscan.naming import elf_files

FLAGS = ("-fno-optimize-sibling-calls", "-Wl,--build-id")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return detach(victims.build("run_to_end", FLAGS), tmp_path)


def detach(built: Path, folder: Path) -> Path:
    """Return a copy without debug information, which lies beside it under another name."""
    path = folder / "program"
    shutil.copy(built, path)
    subprocess.run(["objcopy", "--only-keep-debug", path, folder / "detached"], check=True)
    subprocess.run(["strip", path], check=True)
    return path


def build_id(path: Path) -> str:
    with path.open("rb") as file:
        return elf_files.build_id(ELFFile(file)).hex()


@contextmanager
def server(files: dict[str, bytes], status: int = 404) -> Iterator[tuple[str, list[str]]]:
    """Serve these files by build id; yields the address, and the ids that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, _, name, kind = self.path.split("/")
            assert kind == "debuginfo"
            asked.append(name)
            self.send_response(200 if name in files else status)
            self.end_headers()
            self.wfile.write(files.get(name, b""))

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


def report_on(program: Path, urls: str, *arguments: str) -> Any:
    folder = program.parent
    file = folder / "report.json"
    run = [sys.executable, "-m", "reachscan", "run", "--json", "-o", str(file), "--"]
    cache = {"DEBUGINFOD_URLS": urls, "DEBUGINFOD_CACHE_PATH": str(folder / "cache")}
    done = subprocess.run(
        [*run, program, *(arguments or ("return", "0"))],
        env={**os.environ, **cache},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 1
    return json.loads(file.read_text())


def files_of(report: Any) -> set[str]:
    """Return the source files of the program's own frames; libraries may have theirs on disk."""
    frames = [frame for stack in report["stacks"] for frame in stack]
    own = [frame for frame in frames if (frame["module"] or "").endswith("/program")]
    assert own
    return {Path(frame["file"]).name for frame in own if frame["file"]}


def test_lines_come_from_a_server_and_are_kept(program: Path) -> None:
    detached = (program.parent / "detached").read_bytes()
    with server({build_id(program): detached}) as (url, asked):
        assert files_of(report_on(program, url)) == {"run_to_end.c"}
        assert build_id(program) in asked
        asked.clear()
        report = report_on(program, url)
        assert build_id(program) not in asked
    assert files_of(report) == {"run_to_end.c"}
    assert [w["code"] for w in report["warnings"]] == []


@pytest.mark.skipif(shutil.which("dwz") is None, reason="dwz is not installed")
def test_files_that_debug_files_share_are_fetched_too(tmp_path: Path) -> None:
    for level in ("-O1", "-O2"):  # only several files can share something
        flags = ("-g", level, "-Wl,--build-id", "-std=c++17")
        shutil.copy(victims.build("leaky_sessions", flags), tmp_path / level[1:])
    dwz = ["dwz", "--multifile", "shared", "O1", "O2"]
    subprocess.run(dwz, cwd=tmp_path, check=True)
    program = detach(tmp_path / "O1", tmp_path)
    names = {build_id(program): "detached", build_id(tmp_path / "shared"): "shared"}
    files = {name: (tmp_path / file).read_bytes() for name, file in names.items()}
    (tmp_path / "shared").unlink()
    with server(files) as (url, asked):
        assert "leaky_sessions.cpp" in files_of(report_on(program, url, "once"))
        assert set(names) <= set(asked)


def test_another_files_debug_information_is_not_used(program: Path) -> None:
    other = victims.build("run_to_end", (*FLAGS, "-O0")).read_bytes()
    with server({build_id(program): other}) as (url, asked):
        report = report_on(program, url)
        assert build_id(program) in asked
    assert files_of(report) == set()


def test_a_server_that_fails_is_told_once(program: Path) -> None:
    with server({}, status=500) as (url, asked):
        report = report_on(program, f"http://127.0.0.1:1 ftp://ignored {url}/")
        assert len(asked) == 1
    warnings = [w["message"] for w in report["warnings"] if w["code"] == "debug-server"]
    assert len(warnings) == 2
    assert "127.0.0.1:1: [Errno" in warnings[0]
    assert "status 500" in warnings[1]


def test_nobody_is_asked_unless_a_server_is_named(program: Path) -> None:
    with server({}) as (_, asked):
        assert files_of(report_on(program, "")) == set()
    assert asked == []
