"""Servers that people run, made to serve and then to wait."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from idle_programs import Processes, Scene, Stage
from programs import answers, assert_says, children, free_port, program, unprivileged
from victims import build, need, wait_blocked, wait_until

SECONDS = 300.0
"""A checker that runs the server makes it slow."""

NGINX = """
daemon off; master_process on; worker_processes 1; pid {0}/pid; error_log {0}/log; {1}
events {{ worker_connections 64; }}
http {{
  access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;
  uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;
  server {{ listen unix:{0}/socket; return 200 "hello\\n"; }}
}}
"""


@contextmanager
def nginx(stage: Stage) -> Iterator[Processes]:
    folder = stage.folder
    command = [*stage.prefix, need("nginx", "nginx-light")]
    user = "user nobody nogroup;" if os.geteuid() == 0 else ""
    (folder / "conf").write_text(NGINX.format(folder, user))
    request = b"GET / HTTP/1.0\r\n\r\n"
    with program([*command, "-p", folder, "-c", folder / "conf", "-e", folder / "log"]) as master:

        def served() -> bool:
            return answers(folder / "socket", request, b"hello")

        wait_until(served, "nginx answers", SECONDS)
        assert all(served() for _ in range(100))
        (worker,) = children(master.pid)
        wait_blocked(worker)
        yield {"nginx master": master.pid, "nginx worker": worker}
        assert served()


@contextmanager
def memcached(stage: Stage) -> Iterator[Processes]:
    server = stage.folder / "socket"
    store = b"".join(b"set key%d 0 0 500\r\n%s\r\n" % (i, b"v" * 500) for i in range(200))
    command = [*stage.prefix, need("memcached", "memcached"), "-c", 64, "-s", server]
    with program(command, **unprivileged()) as process:
        wait_until(lambda: answers(server, store, b"STORED"), "memcached answers", SECONDS)
        wait_blocked(process.pid)
        yield {"memcached": process.pid}
        assert answers(server, b"get key0\r\n", b"VALUE key0")


@contextmanager
def redis(stage: Stage) -> Iterator[Processes]:
    """Debian's uses another allocator: build it from source with `make MALLOC=libc`."""
    path = os.environ.get("REACHSCAN_REDIS")
    if path is None:
        pytest.skip("REACHSCAN_REDIS does not name a redis-server that was built with MALLOC=libc")
    server = stage.folder / "socket"
    words = [f"set k{i} {'v' * i}\r\nhset h f{i} {i}\r\nrpush l {i}\r\n" for i in range(500)]
    words += ["zadd z 1 a 2 b\r\n", "del k7\r\n", "eval 'return 7' 0\r\n", "echo served\r\n"]
    work = "".join(words).encode()
    command = [*stage.prefix, path, "--port", "0", "--unixsocket", server, "--save", ""]
    with program(command) as process:
        wait_until(lambda: answers(server, work, b"served"), "redis answers", SECONDS)
        wait_blocked(process.pid)
        yield {"redis-server": process.pid}
        assert answers(server, b"get k3\r\n", b"vvv")


def postgres_programs() -> Path:
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if candidates:
        return candidates[-1].parent
    return Path(need("initdb", "postgresql")).resolve().parent


POSTGRES_SQL = b"""create table t as select g a, g % 97 b from generate_series(1, 5000) g;
create index on t(a); analyze t; create function f(x int) returns int language plpgsql
as 'begin return x + 1; end';
prepare p as select sum(f(t.a)) from t join t u using (a) where u.b = $1;
execute p(7); select count(*) from t join t u on t.b = u.b;
select pg_backend_pid();
"""


@contextmanager
def postgres(stage: Stage) -> Iterator[Processes]:
    folder, programs, user = stage.folder, postgres_programs(), unprivileged()
    data = folder / "data"
    make = [programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync"]
    subprocess.run(list(map(str, make)), check=True, capture_output=True, cwd=folder, **user)
    settings = ["-c", "listen_addresses=", "-c", "autovacuum=off", "-c", "fsync=off"]
    # Not by -D: postgres forgets its copy of that option's value, which is a leak and is found.
    where = {**os.environ, "PGDATA": str(data)}
    server = [*stage.prefix, programs / "postgres", "-k", folder, *settings]
    client = [programs / "psql", "-h", folder, "-U", "tester", "-qAt", "postgres"]
    ready = [str(programs / "pg_isready"), "-h", str(folder), "-q"]
    with program(server, cwd=folder, env=where, stderr=subprocess.DEVNULL, **user) as master:
        wait_until(
            lambda: subprocess.run(ready, check=False).returncode == 0, "postgres is up", SECONDS
        )
        with program(client, stdout=subprocess.PIPE) as session:
            assert session.stdin is not None and session.stdout is not None
            session.stdin.write(POSTGRES_SQL)
            session.stdin.flush()
            session.stdout.readline()
            session.stdout.readline()
            backend = int(session.stdout.readline())
            wait_blocked(backend)
            wait_blocked(master.pid)
            yield {"postgres": master.pid, "postgres backend": backend}


@contextmanager
def mariadb(stage: Stage) -> Iterator[Processes]:
    folder, user = stage.folder, unprivileged()
    data, server = folder / "data", folder / "socket"
    install = [need("mariadb-install-db", "mariadb-server"), "--no-defaults", f"--datadir={data}"]
    install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True, cwd=folder, **user)
    command = [*stage.prefix, need("mariadbd", "mariadb-server"), "--no-defaults"]
    command += [f"--datadir={data}", f"--socket={server}", "--skip-networking"]
    if stage.prefix:  # valgrind 3.19 does not reserve 8 TiB, and waiting for io_uring blocks it
        command += ["--skip-innodb-use-native-aio", "--innodb-buffer-pool-size-max=1G"]
    client = [need("mariadb", "mariadb-client"), "--no-defaults", "-S", server, "-uroot", "-Nn"]
    with program(command, cwd=folder, stderr=subprocess.DEVNULL, **user) as process:
        wait_until(lambda: answers(server, b"", b"MariaDB"), "mariadb answers", SECONDS)
        with program([*client, "mysql"], stdout=subprocess.PIPE) as session:
            assert session.stdin is not None
            session.stdin.write(
                b"create database d; create table d.t(a int primary key, b text);\n"
                b"insert into d.t select seq, repeat('x', 50) from seq_1_to_5000;\n"
                b"select count(*) from d.t join d.t u using (a) where u.b like 'x%';\n"
            )
            session.stdin.flush()
            assert_says(session, b"5000\n")
            wait_blocked(process.pid)
            yield {"mariadbd": process.pid}


@contextmanager
def tmux(stage: Stage) -> Iterator[Processes]:
    server = stage.folder / "socket"
    words = [need("tmux", "tmux"), "-S", str(server), "-f", "/dev/null"]

    def ask(*arguments: str) -> str:
        done = subprocess.run([*words, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    with program([*stage.prefix, *words, "-D"]) as process:
        wait_until(server.exists, "tmux listens", SECONDS)
        ask("new-session", "-d", "-x", "90", "-y", "30", "seq 500; echo up; exec cat")
        ask("split-window", "-h", "exec cat")
        ask("rename-window", "work")
        ask("set-option", "-g", "status-right", "#{host} %H:%M")
        wait_until(lambda: "up" in ask("capture-pane", "-p", "-t", ":.0"), "the pane says it")
        ask("kill-pane", "-t", ":.1")
        wait_blocked(process.pid)
        yield {"tmux server": process.pid}


@contextmanager
def openssl(stage: Stage) -> Iterator[Processes]:
    folder, tool = stage.folder, need("openssl", "openssl")
    key, certificate, server = folder / "key", folder / "certificate", folder / "socket"
    make = [tool, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"]
    make += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(make, check=True, capture_output=True)
    serve = ["s_server", "-key", key, "-cert", certificate, "-unix", server, "-www"]

    def served() -> bool:
        client = [tool, "s_client", "-unix", str(server), "-quiet", "-ign_eof"]
        request = {"input": b"GET / HTTP/1.0\r\n\r\n", "capture_output": True}
        done = subprocess.run(client, check=False, timeout=60, **request)  # type: ignore[call-overload]
        return b"200 ok" in done.stdout

    with program([*stage.prefix, tool, *serve]) as process:
        wait_until(served, "openssl answers", SECONDS)
        assert all(served() for _ in range(3))
        wait_blocked(process.pid)
        yield {"openssl s_server": process.pid}


SSHD = """
ListenAddress 127.0.0.1
Port {1}
HostKey {0}/host
AuthorizedKeysFile {0}/user.pub
PidFile none
StrictModes no
PermitRootLogin yes
"""


@contextmanager
def sshd(stage: Stage) -> Iterator[Processes]:
    if os.geteuid() != 0:
        pytest.skip("only root can let somebody log in by sshd")
    folder, port = stage.folder, free_port()
    server, client = need("sshd", "openssh-server"), need("ssh", "openssh-client")
    Path("/run/sshd").mkdir(exist_ok=True)  # where it confines what is not yet logged in
    for key in ("host", "user"):
        make = [need("ssh-keygen", "openssh-client"), "-q", "-t", "ed25519", "-N", ""]
        subprocess.run([*make, "-f", str(folder / key)], check=True)
    (folder / "conf").write_text(SSHD.format(folder, port))
    ask = [client, "-F", "none", "-q", "-o", "StrictHostKeyChecking=no", "-p", port]
    ask += ["-o", "UserKnownHostsFile=/dev/null", "-i", folder / "user", "root@127.0.0.1"]
    environment = dict(os.environ)
    if stage.prefix:  # the sandbox would be the end of valgrind
        environment["LD_PRELOAD"] = str(build("unconfined", ["-shared", "-fPIC"]))
    listener = [*stage.prefix, server, "-D", "-f", folder / "conf"]
    output = {"stderr": subprocess.DEVNULL}
    with program(listener, env=environment, **output) as process, ExitStack() as stack:
        wait_until(lambda: answers(("127.0.0.1", port), b"", b"SSH-2.0"), "sshd answers", SECONDS)
        session = stack.enter_context(program([*ask, "echo up; cat"], stdout=subprocess.PIPE))
        assert_says(session, b"up\n")
        (pid,) = children(process.pid)
        wait_blocked(pid)
        yield {"sshd": process.pid, "sshd session": pid}


@contextmanager
def dnsmasq(stage: Stage) -> Iterator[Processes]:
    port = free_port()
    command = [*stage.prefix, need("dnsmasq", "dnsmasq-base"), "-d", "-C", "/dev/null", "-p", port]
    command += ["--no-resolv", "--listen-address=127.0.0.1", "--bind-interfaces", "--user=nobody"]
    command += [f"--address=/host{i}.test/192.0.2.1" for i in range(200)]

    def resolved(name: bytes) -> bool:
        labels = b"".join(bytes([len(part)]) + part for part in name.split(b"."))
        query = struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\1\0\1"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(5)
            client.connect(("127.0.0.1", port))
            try:
                client.send(query)
                return client.recv(512).endswith(b"\xc0\0\2\1")
            except OSError:
                return False

    with program(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: resolved(b"host0.test"), "dnsmasq answers", SECONDS)
        assert all(resolved(b"host%d.test" % i) for i in range(200))
        wait_blocked(process.pid)
        yield {"dnsmasq": process.pid}


@contextmanager
def ngircd(stage: Stage) -> Iterator[Processes]:
    port, configuration = free_port(), stage.folder / "conf"
    configuration.write_text(
        f"[Global]\nName = irc.test\nInfo = test\nPorts = {port}\nListen = 127.0.0.1\n"
        "[Options]\nDNS = no\nIdent = no\nPAM = no\n[SSL]\nCAFile =\n"
    )
    command = [*stage.prefix, need("ngircd", "ngircd"), "-n", "-f", configuration]
    hello = b"NICK ada\r\nUSER ada 0 * :Ada\r\nJOIN #room\r\nTOPIC #room :hello\r\nWHO #room\r\n"
    address = ("127.0.0.1", port)
    with program(command, **unprivileged()) as process:
        wait_until(lambda: answers(address, hello, b"End of WHO"), "ngircd answers", SECONDS)
        wait_blocked(process.pid)
        yield {"ngircd": process.pid}


MQTT_CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03ada"
MQTT_SUBSCRIBE = b"\x82\x06\x00\x01\x00\x01#\x00"
MQTT_PUBLISH = b"".join(b"\x31\x0b\x00\x04t/%02dhello" % i for i in range(64))


@contextmanager
def mosquitto(stage: Stage) -> Iterator[Processes]:
    configuration, server = stage.folder / "conf", stage.folder / "socket"
    configuration.write_text(f"listener 0 {server}\nallow_anonymous true\n")
    command = [*stage.prefix, need("mosquitto", "mosquitto"), "-c", configuration]
    session = MQTT_CONNECT + MQTT_SUBSCRIBE + MQTT_PUBLISH
    with program(command, stderr=subprocess.DEVNULL, **unprivileged()) as process:
        wait_until(lambda: answers(server, session, b"t/63hello"), "mosquitto answers", SECONDS)
        wait_blocked(process.pid)
        yield {"mosquitto": process.pid}


SERVERS: dict[str, Scene] = {
    "nginx": nginx,
    "memcached": memcached,
    "redis": redis,
    "postgres": postgres,
    "mariadb": mariadb,
    "tmux": tmux,
    "openssl s_server": openssl,
    "sshd": sshd,
    "dnsmasq": dnsmasq,
    "ngircd": ngircd,
    "mosquitto": mosquitto,
}
