"""More programs that people run, made to work and then to wait; which of all lose blocks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from idle_programs import COMMANDS, Processes, Scene, Stage
from idle_servers import SERVERS
from programs import answers, free_port, program, unprivileged
from victims import need, wait_blocked, wait_until

PROSODY = """
daemonize = false; pidfile = "{0}/pid"; data_path = "{0}"; certificates = "{0}"; run_as_root = true
modules_enabled = {{ "disco", "roster", "saslauth", "vcard4", "pep", "ping", "time", "version" }}
modules_disabled = {{ "s2s", "tls" }}; c2s_require_encryption = false
c2s_ports = {{ {1} }}; c2s_interfaces = {{ "127.0.0.1" }}; log = {{ error = "{0}/log" }}
VirtualHost "test"
  authentication = "anonymous"
Component "room.test" "muc"
"""
XMPP = (
    b"<?xml version='1.0'?><stream:stream to='test' xmlns='jabber:client' version='1.0' "
    b"xmlns:stream='http://etherx.jabber.org/streams'>"
    b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>"
)


@contextmanager
def prosody(stage: Stage) -> Iterator[Processes]:
    port, configuration = free_port(), stage.folder / "prosody.cfg.lua"
    configuration.write_text(PROSODY.format(stage.folder, port))
    command = [*stage.prefix, need("prosody", "prosody"), "-F", "--config", configuration]
    address = ("127.0.0.1", port)
    with program(command, cwd=stage.folder, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: answers(address, XMPP, b"<success"), "prosody answers", 120)
        assert all(answers(address, XMPP, b"<success") for _ in range(100))
        wait_blocked(process.pid)
        yield {"prosody": process.pid}


@contextmanager
def pulseaudio(stage: Stage) -> Iterator[Processes]:
    # It wants a folder of its own.
    folder, user = stage.folder / "home", unprivileged()
    folder.mkdir(0o700)
    os.chown(folder, user.get("user", -1), user.get("group", -1))
    server = folder / "socket"
    places = {
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "PULSE_RUNTIME_PATH": str(folder),
    }
    load = [
        f"--load={module}"
        for module in (
            f"module-native-protocol-unix auth-anonymous=1 socket={server}",
            *("module-null-sink", "module-always-sink", "module-stream-restore"),
        )
    ]
    command = [*stage.prefix, need("pulseaudio", "pulseaudio"), "-n", "--daemonize=no", *load]
    command += ["--exit-idle-time=-1", "--disable-shm", "--use-pid-file=no"]
    client = [need("pactl", "pulseaudio-utils"), "-s", f"unix:{server}"]

    def asked(*words: str) -> bool:
        done = subprocess.run([*client, *words], capture_output=True, env=environment, check=False)
        return done.returncode == 0

    environment = {**os.environ, **places}
    output = {"stderr": subprocess.DEVNULL}
    with program(command, env=environment, **output, **user) as process:
        wait_until(lambda: asked("info"), "pulseaudio answers", 60)
        for i in range(20):
            assert asked("load-module", "module-null-sink", f"sink_name=sink{i}")
            assert asked("set-sink-volume", f"sink{i}", "50%") and asked("list")
        wait_blocked(process.pid)
        yield {"pulseaudio": process.pid}


@contextmanager
def aria2c(stage: Stage) -> Iterator[Processes]:
    port = free_port()
    command = [
        *stage.prefix,
        need("aria2c", "aria2"),
        "--no-conf",
        "--enable-rpc",
        "-d",
        stage.folder,
    ]
    command += [f"--rpc-listen-port={port}", "--quiet", f"--save-session={stage.folder}/session"]
    add = b'{"jsonrpc":"2.0","id":1,"method":"aria2.addUri","params":[["http://127.0.0.1:1/%d"]]}'
    tell = b'{"jsonrpc":"2.0","id":2,"method":"aria2.tellStopped","params":[0,99]}'

    def asked(body: bytes) -> bool:
        head = b"POST /jsonrpc HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
        return answers(("127.0.0.1", port), head + body, b'"result"')

    with program(command) as process:
        wait_until(lambda: asked(tell), "aria2c answers", 60)
        assert all(asked(add % i) and asked(tell) for i in range(60))
        wait_blocked(process.pid)
        yield {"aria2c": process.pid}


_COMMANDS = ("python3", "perl", "node", "sqlite3", "git cat-file", "vim")
_SERVERS = ("nginx", "memcached", "postgres", "tmux", "mosquitto", "dnsmasq", "openssl s_server")

PROGRAMS: dict[str, Scene] = {
    "prosody": prosody,
    "pulseaudio": pulseaudio,
    "aria2c": aria2c,
    **{name: COMMANDS[name] for name in _COMMANDS},
    **{name: SERVERS[name] for name in _SERVERS},
}
