"""Servers with a few lines of configuration, made to answer and then to wait."""

from __future__ import annotations

import struct

from idle_programs import Scene
from staging import Fed, Server, dns_query

DNS = dns_query("host.t")
DNS_ANSWER = bytes([192, 0, 2, 1])
ZONE = """$ORIGIN t.
$TTL 60
@ SOA ns admin 1 60 60 60 60
@ NS ns
ns A 192.0.2.1
host A 192.0.2.1
""" + "".join(f"host{i} A 192.0.2.{i % 250}\n" for i in range(500))
SNMP = bytes.fromhex(
    "302602010004067075626c6963a019020101020100020100300e300c06082b060102010101000500"
)
LDAP_BIND = bytes.fromhex("300c020101600702010304008000")
LDAP_BOUND = bytes.fromhex("61070a0100")

UNBOUND = """
server:
  interface: 127.0.0.1@{port}
  do-daemonize: no
  username: ""
  chroot: ""
  use-syslog: no
  pidfile: ""
  local-zone: "t." static
  local-data: "host.t. A 192.0.2.1"
remote-control:
  control-enable: no
"""
NAMED = """
options { directory "{folder}"; listen-on port {port} { 127.0.0.1; }; listen-on-v6 { none; };
  pid-file none; session-keyfile none; recursion no; dnssec-validation no; };
controls {};
zone "t" { type primary; file "zone"; };
"""
NSD = """
server:
  ip-address: 127.0.0.1
  port: {port}
  username: ""
  zonesdir: "{folder}"
  database: ""
  pidfile: ""
  xfrdfile: "{folder}/xfrd"
  zonelistfile: "{folder}/list"
  server-count: 1
zone:
  name: t
  zonefile: zone
"""
KNOT = """
server:
  rundir: {folder}
  listen: 127.0.0.1@{port}
database:
  storage: {folder}
zone:
  - domain: t
    storage: {folder}
    file: zone
"""
SLAPD = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
pidfile {folder}/pid
modulepath /usr/lib/ldap
moduleload back_mdb
database mdb
suffix "dc=t"
rootdn "cn=a,dc=t"
rootpw x
directory {folder}
"""
RSYSLOG = """
module(load="imtcp")
input(type="imtcp" address="127.0.0.1" port="{port}")
template(name="t" type="string" string="%HOSTNAME% %msg%\\n")
action(type="omfile" file="{folder}/written" template="t")
"""
SYSLOG = b"".join(b"<34>Oct 11 22:14:15 host program[%d]: message %d\n" % (i, i) for i in range(50))
VSFTPD = """listen=YES
listen_address=127.0.0.1
listen_port={port}
background=NO
anonymous_enable=YES
seccomp_sandbox=NO
secure_chroot_dir={folder}/empty
"""
TOR_COMMANDS = (
    b"AUTHENTICATE\r\nGETINFO version\r\nGETINFO config/names\r\nGETINFO info/names\r\nQUIT\r\n"
)
JOBS = b"use t\r\nwatch t\r\n" + b"put 1 0 9 5\r\nhello\r\n" * 50 + b"reserve\r\nstats\r\n"

STUNNEL = """
foreground = yes
pid =
[s]
client = yes
accept = 127.0.0.1:{port}
connect = 127.0.0.1:1
"""
PGBOUNCER = """
[databases]
* = host=127.0.0.1
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
unix_socket_dir = {folder}
"""
SSL_REQUEST = struct.pack(">II", 8, 80877103)
INSPIRCD = """<server name="a.b" description="x" network="n" id="1AA">
<admin name="a" email="b@c" nick="a"><bind address="127.0.0.1" port="{port}" type="clients">
<connect allow="*" timeout="60"><log method="file" type="*" level="default" target="{folder}/log">
"""
STUN = struct.pack(">HHI12s", 1, 0, 0x2112A442, b"x" * 12)
CLAMD = """TCPSocket {port}
TCPAddr 127.0.0.1
DatabaseDirectory {folder}/db
Foreground yes
"""
SIGNATURES = "".join(f"Test.{i}:0:*:58354f2150254041505b345c505a{i:04x}\n" for i in range(500))
MPD = """
music_directory "{folder}"
db_file "{folder}/db"
bind_to_address "127.0.0.1"
port "{port}"
audio_output {
  type "null"
  name "n"
}
"""
SAMBA = """[global]
lock directory = {folder}
state directory = {folder}
cache directory = {folder}
private dir = {folder}
pid directory = {folder}
ncalrpc dir = {folder}/n
log file = {folder}/log
smb ports = {port}
bind interfaces only = yes
interfaces = lo
server min protocol = NT1
[x]
path = {folder}
"""
DIALECT = b"\2NT LM 0.12\0"
NEGOTIATE = struct.pack(">I4sB27xBH", 32 + 3 + len(DIALECT), b"\xffSMB", 0x72, 0, len(DIALECT) << 8)
_IN_FOLDER = "{folder}/conf"

SERVICES: dict[str, Scene] = {
    "unbound": Server(
        "unbound", ("unbound", "-d", "-c", _IN_FOLDER), DNS, DNS_ANSWER, (("conf", UNBOUND),)
    ),
    "named": Server(
        "bind9",
        ("named", "-g", "-c", _IN_FOLDER),
        DNS,
        DNS_ANSWER,
        (("conf", NAMED), ("zone", ZONE)),
    ),
    "nsd": Server(
        "nsd",
        ("nsd", "-d", "-c", _IN_FOLDER),
        DNS,
        DNS_ANSWER,
        (("conf", NSD), ("zone", ZONE)),
        has_worker=True,
    ),
    "knotd": Server(
        "knot", ("knotd", "-c", _IN_FOLDER), DNS, DNS_ANSWER, (("conf", KNOT), ("zone", ZONE))
    ),
    "slapd": Server(
        "slapd",
        ("slapd", "-d", "0", "-h", "ldap://127.0.0.1:{port}", "-f", _IN_FOLDER),
        LDAP_BIND,
        LDAP_BOUND,
        (("conf", SLAPD),),
    ),
    "beanstalkd": Server(
        "beanstalkd", ("beanstalkd", "-l", "127.0.0.1", "-p", "{port}"), JOBS, b"uptime"
    ),
    "vsftpd": Server(
        "vsftpd",
        ("vsftpd", _IN_FOLDER),
        b"",
        b"220 ",
        (("conf", VSFTPD), ("empty/x", "")),
        times=10,
    ),
    "rsyslogd": Server(
        "rsyslog",
        ("rsyslogd", "-n", "-f", _IN_FOLDER, "-i", "{folder}/pid"),
        SYSLOG,
        b"",
        (("conf", RSYSLOG),),
    ),
    "snmpd": Server(
        "snmpd",
        ("snmpd", "-f", "-Lo", "-C", "-c", _IN_FOLDER, "tcp:127.0.0.1:{port}"),
        SNMP,
        b"Linux",
        (("conf", "rocommunity public\n"),),
    ),
    "exim": Server(
        "exim4-daemon-light",
        ("exim4", "-bdf", "-oX", "127.0.0.1.{port}", "-oP", "{folder}/pid"),
        b"",
        b"220",
        times=10,
    ),
    "rsyncd": Server(
        "rsync",
        (
            "rsync",
            "--daemon",
            "--no-detach",
            "--config",
            _IN_FOLDER,
            "--address=127.0.0.1",
            "--port={port}",
        ),
        b"@RSYNCD: 31.0\n\n",
        b"EXIT",
        (("conf", "use chroot = no\n[m]\npath = /usr/include\n"),),
    ),
    "svnserve": Server(
        "subversion",
        (
            "svnserve",
            "-d",
            "--foreground",
            "-T",
            "--listen-host",
            "127.0.0.1",
            "--listen-port",
            "{port}",
        ),
        b"",
        b"( success",
    ),
    "stunnel": Server(
        "stunnel4",
        ("stunnel4", _IN_FOLDER),
        b"",
        b"",
        (("conf", STUNNEL),),
    ),
    "gpsd": Server(
        "gpsd",
        ("gpsd", "-N", "-n", "-F", "{folder}/control", "-S", "{port}"),
        b'?WATCH={"enable":true};\n',
        b"WATCH",
    ),
    "tor": Server(
        "tor",
        (
            "tor",
            "-f",
            "/nonexistent",
            "--ignore-missing-torrc",
            "--DataDirectory",
            "{folder}/d",
            "--SocksPort",
            "0",
            "--ControlPort",
            "{port}",
            "--DisableNetwork",
            "1",
        ),
        TOR_COMMANDS,
        b"closing",
    ),
    "ncat": Server(
        "ncat",
        ("ncat", "-lk", "127.0.0.1", "{port}", "--exec", "/bin/cat"),
        b"hello",
        b"hello",
        times=5,
    ),
    "socat": Server(
        "socat",
        ("socat", "TCP-LISTEN:{port},bind=127.0.0.1,fork", "PIPE"),
        b"hello",
        b"hello",
        times=5,
    ),
    "dbus-daemon": Server(
        "dbus",
        ("dbus-daemon", "--session", "--nofork", "--address=unix:path={folder}/socket"),
        b"\0AUTH EXTERNAL 30\r\n",
        b"OK ",
        unix=True,
    ),
    "chronyd": Fed(
        "chrony",
        ("chronyd", "-d", "-x", "-u", "root", "cmdport 0", "port 0", "local"),
        b"",
        b"starting",
    ),
    "tcpdump": Fed(
        "tcpdump", ("tcpdump", "-n", "-i", "lo", "tcp and not port 22"), b"", b"listening"
    ),
    "pgbouncer": Server(
        "pgbouncer",
        ("pgbouncer", _IN_FOLDER),
        SSL_REQUEST,
        b"N",
        (("conf", PGBOUNCER),),
        drops_root=True,
    ),
    "gearmand": Server(
        "gearman-job-server",
        ("gearmand", "-L", "127.0.0.1", "-p", "{port}", "-l", "{folder}/log"),
        b"status\nworkers\nversion\n",
        b"OK",
    ),
    "inspircd": Server(
        "inspircd",
        ("inspircd", "--nofork", "--runasroot", "--config", _IN_FOLDER),
        b"NICK a\r\nUSER a a a :a\r\n",
        b"NOTICE",
        (("conf", INSPIRCD),),
    ),
    "bird": Fed(
        "bird2", ("bird", "-f", "-c", "/dev/stdin", "-s", "{folder}/c", "-P", "{folder}/p"), b""
    ),
    "pdns_recursor": Server(
        "pdns-recursor",
        (
            *("pdns_recursor", "--config-dir={folder}", "--socket-dir={folder}", "--daemon=no"),
            *("--local-address=127.0.0.1", "--local-port={port}", "--setuid=0"),
        ),
        b"",
        b"",
        times=2,
    ),
    "turnserver": Server(
        "coturn",
        (
            *("turnserver", "-n", "-p", "{port}", "-L", "127.0.0.1", "--no-tls", "--no-dtls"),
            *("--log-file=stdout", "--no-cli"),
        ),
        STUN,
        b"\1\1",
    ),
    "clamd": Server(
        "clamav-daemon",
        ("clamd", "--config-file={folder}/conf", "--foreground"),
        b"zPING\0",
        b"PONG",
        (("conf", CLAMD), ("db/signatures.ndb", SIGNATURES)),
    ),
    "mpd": Server(
        "mpd",
        ("mpd", "--no-daemon", _IN_FOLDER),
        b"stats\nstatus\ncommands\noutputs\n",
        b"OK",
        (("conf", MPD),),
    ),
    "freeradius": Fed("freeradius", ("freeradius", "-X"), b"", b"Ready to process requests"),
    "smbd": Server(
        "samba",
        ("smbd", "-F", "-s", _IN_FOLDER),
        NEGOTIATE + DIALECT,
        b"SMB",
        (("conf", SAMBA),),
        times=5,
    ),
    "etcd": Server(
        "etcd-server",
        (
            *("etcd", "--data-dir", "{folder}/d", "--listen-peer-urls", "http://127.0.0.1:0"),
            *("--listen-client-urls", "http://127.0.0.1:{port}"),
            *("--advertise-client-urls", "http://127.0.0.1:{port}"),
        ),
        b"GET /version HTTP/1.0\r\n\r\n",
        b"etcd",
    ),
    "nats": Server(
        "nats-server",
        ("nats-server", "-a", "127.0.0.1", "-p", "{port}"),
        b"CONNECT {}\r\nPING\r\n",
        b"PONG",
    ),
}
