"""Servers and proxies of the web, made to answer and then to wait."""

from __future__ import annotations

from idle_programs import Scene
from staging import Fed, Server

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
HTTP = b"GET / HTTP/1.0\r\n\r\n"
BY_PROXY = b"GET http://127.0.0.1:1/ HTTP/1.0\r\n\r\n"
APACHE = """
ServerRoot {folder}
PidFile {folder}/pid
ErrorLog {folder}/errors
ServerName t
Listen 127.0.0.1:{port}
User nobody
Group nogroup
StartServers 1
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule autoindex_module /usr/lib/apache2/modules/mod_autoindex.so
LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
LoadModule rewrite_module /usr/lib/apache2/modules/mod_rewrite.so
RewriteEngine on
RewriteRule ^/old(.*)$ /new$1 [R]
DocumentRoot /usr/include
<Directory /usr/include>
  Require all granted
  Options Indexes
</Directory>
"""
HAPROXY = """
global
  maxconn 64
defaults
  mode http
  timeout client 9s
  timeout server 9s
  timeout connect 9s
frontend f
  bind 127.0.0.1:{port}
  acl old path_beg /old
  http-request redirect location /new if old
  http-request return status 200 content-type text/plain string hello
"""
LIGHTTPD = """
server.document-root = "/usr/include"
server.port = {port}
server.bind = "127.0.0.1"
server.modules = ("mod_dirlisting", "mod_rewrite", "mod_accesslog")
accesslog.filename = "{folder}/access"
dir-listing.activate = "enable"
"""
SQUID = """
http_port 127.0.0.1:{port}
http_access allow all
pid_filename none
cache_log {folder}/cache.log
access_log none
netdb_filename none
coredump_dir {folder}
max_filedescriptors 256
cache_mem 8 MB
"""
ICECAST = """<icecast><hostname>t</hostname>
<limits><clients>9</clients><sources>2</sources></limits>
<authentication><source-password>x</source-password><admin-user>a</admin-user>
<admin-password>x</admin-password></authentication>
<listen-socket><port>{port}</port><bind-address>127.0.0.1</bind-address></listen-socket>
<paths><basedir>/usr/share/icecast2</basedir><logdir>{folder}</logdir>
<webroot>/usr/share/icecast2/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths>
<logging><accesslog>a.log</accesslog><errorlog>e.log</errorlog></logging></icecast>
"""
PRIVOXY = """
confdir /etc/privoxy
templdir /etc/privoxy/templates
listen-address 127.0.0.1:{port}
actionsfile default.action
filterfile default.filter
"""
_IN_FOLDER = "{folder}/conf"

WEB_SERVERS: dict[str, Scene] = {
    "apache2": Server(
        "apache2-bin",
        ("apache2", "-DFOREGROUND", "-f", _IN_FOLDER),
        HTTP,
        b"stdio.h",
        (("conf", APACHE),),
        has_worker=True,
    ),
    "haproxy": Server(
        "haproxy", ("haproxy", "-db", "-f", _IN_FOLDER), HTTP, b"hello", (("conf", HAPROXY),)
    ),
    "lighttpd": Server(
        "lighttpd", ("lighttpd", "-D", "-f", _IN_FOLDER), HTTP, b"stdio.h", (("conf", LIGHTTPD),)
    ),
    "squid": Server(
        "squid",
        ("squid", "-N", "-f", _IN_FOLDER),
        BY_PROXY,
        b"ERR_CONNECT",
        (("conf", SQUID),),
        drops_root=True,
        has_worker=True,
    ),
    "varnish": Server(
        "varnish",
        (
            "varnishd",
            "-F",
            "-n",
            "{folder}/v",
            "-a",
            "127.0.0.1:{port}",
            "-b",
            "none",
            "-s",
            "malloc,16m",
        ),
        HTTP,
        b"503",
        has_worker=True,
    ),
    "tinyproxy": Server(
        "tinyproxy",
        ("tinyproxy", "-d", "-c", _IN_FOLDER),
        BY_PROXY,
        b"HTTP/1.",
        (("conf", "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 10\nLogLevel Error\n"),),
        drops_root=True,
    ),
    "privoxy": Server(
        "privoxy",
        ("privoxy", "--no-daemon", _IN_FOLDER),
        b"GET http://p.p/show-status HTTP/1.0\r\n\r\n",
        b"Privoxy",
        (("conf", PRIVOXY),),
    ),
    "hg serve": Server(
        "mercurial",
        ("hg", "serve", "-a", "127.0.0.1", "-p", "{port}", "--web-conf", _IN_FOLDER),
        HTTP,
        b"Mercurial",
        (("conf", "[paths]\n"),),
    ),
    "transmission": Server(
        "transmission-daemon",
        ("transmission-daemon", "-f", "-g", "{folder}/t", "-p", "{port}", "-a", "127.0.0.1"),
        b"GET /transmission/rpc HTTP/1.0\r\n\r\n",
        b"HTTP/1.",
    ),
    "icecast": Server(
        "icecast2",
        ("icecast2", "-c", _IN_FOLDER),
        b"GET /status-json.xsl HTTP/1.0\r\n\r\n",
        b"icestats",
        (("conf", ICECAST),),
        drops_root=True,
    ),
    "aria2c": Server(
        "aria2",
        ("aria2c", "--enable-rpc", "--rpc-listen-port={port}"),
        b"GET /jsonrpc?method=aria2.getVersion&id=1 HTTP/1.0\r\n\r\n",
        b"enabledFeatures",
    ),
    "node_exporter": Server(
        "prometheus-node-exporter",
        ("prometheus-node-exporter", "--web.listen-address=127.0.0.1:{port}"),
        b"GET /metrics HTTP/1.0\r\n\r\n",
        b"go_gc",
        times=5,
    ),
    "nghttpd": Server(
        "nghttp2-server",
        ("nghttpd", "--no-tls", "-a", "127.0.0.1", "-d", "{folder}", "{port}"),
        HTTP2,
        b"\0\0",
    ),
    "traffic_server": Fed("trafficserver", ("traffic_server",), b""),
    "qbittorrent-nox": Server(
        "qbittorrent-nox",
        ("qbittorrent-nox", "--webui-port={port}", "--profile={folder}"),
        b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n",
        b"HTTP",
        times=10,
    ),
}
