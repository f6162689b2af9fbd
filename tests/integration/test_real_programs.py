"""Programs that people run: none of them has lost anything while idle."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import assert_says, await_word, program, unprivileged
from scans import HELPER, scan
from victims import REPOSITORY, need, wait_blocked, wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user may write to; pytest's own belong to the tester alone."""
    path = Path(tempfile.mkdtemp(prefix="reachscan-"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def assert_no_leaks(pid: int) -> None:
    report = scan(pid)
    assert report["heap"]["allocations"] > 0
    assert report["leaks"]["allocations"] == 0, json.dumps(report["groups"], indent=1)


PYTHON = (
    "import json, decimal, re, sys; x = json.loads('[1, {}]'); print('up', flush=True); input()"
)


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])
def test_python(python: str) -> None:
    command = [need(python, "python3"), "-c", PYTHON]
    with program(command, stdout=subprocess.PIPE) as process:
        assert_says(process, b"up\n")
        wait_blocked(process.pid)
        assert_no_leaks(process.pid)


BASH = "declare -A map; for i in {1..500}; do map[$i]=$(printf %s-$i x); done; echo up; read x"
PERL = "$| = 1; my %h; $h{$_} = [$_, {a => 1}] for 1..5000; print join(',', %h), 'up'; <STDIN>"
NODE = "const x = []; for (let i = 0; i < 9999; ++i) x.push({i}); console.log('up'); {}"
PHP = '$a = []; for ($i = 0; $i < 5000; $i++) $a["k$i"] = ["x" => $i]; echo "up"; fgets(STDIN);'
SQL_FILL = b"create table t(a, b); insert into t values (1, 2); create index i on t(b);\n"
WAITING = {
    "bash": (["bash", "-c", BASH], b""),
    "perl": (["perl", "-e", PERL], b""),
    "nodejs": (["node", "-e", NODE + "process.stdin.resume()"], b""),
    "php-cli": (["php", "-r", PHP], b""),
    "lua5.4": (["lua5.4", "-i"], b"t = {} for i = 1, 10000 do t[i] = {i} end print('up')\n"),
    "tcl": (
        ["tclsh"],
        b"for {set i 0} {$i < 999} {incr i} {set a($i) b}; puts up; flush stdout\n",
    ),
    "sqlite3": (["sqlite3"], SQL_FILL + b".system echo up\n"),
    "guile-3.0": (["guile", "-q"], b"(define x (iota 10000))\n'up\n(force-output)\n"),
    "git": (["git", "-C", str(REPOSITORY), "cat-file", "--batch"], b"HEAD\nHEAD:README.md\nup\n"),
    "gdb": (["gdb", "-q", "-nx", str(HELPER)], b"info functions sweep\nbreak main\necho up\\n\n"),
}
"""By the Debian package: the command, and what it reads. All say "up" when they have done it."""


@pytest.mark.parametrize("package", WAITING)
def test_program_that_waits(package: str) -> None:
    command, typed = WAITING[package]
    command = [need(command[0], package), *command[1:]]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with program(command, **output) as process:
        assert process.stdin is not None
        process.stdin.write(typed)
        process.stdin.flush()
        await_word(process, b"up")
        wait_blocked(process.pid)
        assert_no_leaks(process.pid)


def test_tmux(folder: Path) -> None:
    server = folder / "socket"
    with program([need("tmux", "tmux"), "-S", server, "-f", "/dev/null", "-D"]) as process:
        wait_until(server.exists, "tmux listens")
        wait_blocked(process.pid)
        assert_no_leaks(process.pid)


NGINX = """
daemon off; master_process on; worker_processes 1; pid {0}/pid; error_log {0}/log; {1}
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;
  uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;
  server {{ listen unix:{0}/socket; return 200 "hello\\n"; }}
}}
"""


def answers(address: Path, request: bytes, expected: bytes) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(address))
        except OSError:
            return False
        client.sendall(request)
        return expected in client.recv(4096)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_nginx(folder: Path) -> None:
    nginx = need("nginx", "nginx-light")
    user = "user nobody nogroup;" if os.geteuid() == 0 else ""
    (folder / "conf").write_text(NGINX.format(folder, user))
    request = b"GET / HTTP/1.0\r\n\r\n"
    command = [nginx, "-p", folder, "-c", folder / "conf", "-e", folder / "log"]
    with program(command) as master:
        wait_until(lambda: answers(folder / "socket", request, b"hello"), "nginx answers")
        (worker,) = children(master.pid)
        for pid in (master.pid, worker):
            assert_no_leaks(pid)
        assert answers(folder / "socket", request, b"hello")


def test_memcached(folder: Path) -> None:
    server = folder / "socket"
    store = b"set key 0 0 5\r\nvalue\r\n"
    with program([need("memcached", "memcached"), "-s", server], **unprivileged()) as process:
        wait_until(lambda: answers(server, store, b"STORED"), "memcached answers")
        assert_no_leaks(process.pid)
        assert answers(server, b"get key\r\n", b"value")


def test_redis(folder: Path) -> None:
    """Debian's uses another allocator: build it from source with `make MALLOC=libc`."""
    redis = os.environ.get("REACHSCAN_REDIS")
    if redis is None:
        pytest.skip("REACHSCAN_REDIS does not name a redis-server that was built with MALLOC=libc")
    server = folder / "socket"
    store = b"set key value\r\n"
    with program([redis, "--port", "0", "--unixsocket", server, "--save", ""]) as process:
        wait_until(lambda: answers(server, store, b"OK"), "redis answers")
        assert_no_leaks(process.pid)
        assert answers(server, b"get key\r\n", b"value")


def postgres_programs() -> Path:
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if candidates:
        return candidates[-1].parent
    return Path(need("initdb", "postgresql")).resolve().parent


SQL = b"create table t as select g from generate_series(1, 1000) g; select count(*) from t;\n"


def test_postgres_backend(folder: Path) -> None:
    programs = postgres_programs()
    user, data = unprivileged(), folder / "data"
    make = [programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync"]
    subprocess.run(list(map(str, make)), check=True, capture_output=True, cwd=folder, **user)
    settings = ["-c", "listen_addresses=", "-c", "autovacuum=off", "-c", "fsync=off"]
    # Not by -D: postgres forgets its copy of that option's value, which is a leak and is found.
    where = {**os.environ, "PGDATA": str(data)}
    server = [programs / "postgres", "-k", folder, *settings]
    client = [programs / "psql", "-h", folder, "-U", "tester", "-qAt", "postgres"]
    ready = [str(programs / "pg_isready"), "-h", str(folder), "-q"]
    with program(server, cwd=folder, env=where, stderr=subprocess.DEVNULL, **user):
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, "postgres is up")
        with program(client, stdout=subprocess.PIPE) as session:
            assert session.stdin is not None and session.stdout is not None
            session.stdin.write(SQL + b"select pg_backend_pid();\n")
            session.stdin.flush()
            assert_says(session, b"1000\n")
            backend = int(session.stdout.readline())
            wait_blocked(backend)
            assert_no_leaks(backend)
