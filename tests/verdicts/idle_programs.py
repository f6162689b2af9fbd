"""Programs that people run, made to work and then to wait: interpreters and command line tools."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from programs import await_word, children, program
from victims import REPOSITORY, need, wait_blocked, wait_until


@dataclass(frozen=True)
class Stage:
    """Where a program is started."""

    folder: Path
    """Every user may write to it."""
    prefix: tuple[str, ...] = ()
    """Words before the command, such as those of a checker that runs it."""


Processes = dict[str, int]
"""What waits: process ids by what each of them is."""

Scene = Callable[[Stage], AbstractContextManager[Processes]]


@dataclass(frozen=True)
class Waiting:
    """A program that says "up" when it has worked, and then reads its input."""

    package: str
    command: tuple[str, ...]
    typed: bytes = b""
    environment: tuple[tuple[str, str], ...] = ()

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        name = self.command[0]
        command = [*stage.prefix, need(name, self.package), *self.command[1:]]
        environment = {**os.environ, **dict(self.environment)}
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with program(command, env=environment, cwd=stage.folder, **output) as process:
            assert process.stdin is not None
            process.stdin.write(self.typed)
            process.stdin.flush()
            await_word(process, b"up", 600 if stage.prefix else 60)
            wait_blocked(process.pid)
            yield {Path(name).name: process.pid}


PYTHON = """
import decimal, json, re, sqlite3, threading
def work():
    for i in range(300):
        json.loads(json.dumps({"k%d" % i: [i, {}, "v" * i]}))
        decimal.Decimal(i + 2).sqrt()
        re.compile("(a|b)%d" % i)
    base = sqlite3.connect(":memory:")
    base.execute("create table t(a, b)")
    base.executemany("insert into t values (?, ?)", ((i, str(i)) for i in range(5000)))
    assert base.execute("select count(*) from t join t u using (b)").fetchone() == (5000,)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("up", flush=True)
input()
"""
PERL = """
$| = 1; my %h; $h{$_} = [$_, {a => 1}] for 1..5000; my $t = join(',', %h);
my @w = sort { $a cmp $b } split(/,/, $t); my %n; $n{$1}++ while $t =~ /(\\d\\d)/g;
delete $h{$_} for 1..2500; eval { die { code => 1 } }; print "up"; <STDIN>
"""
RUBY = """
require "json"; require "set"
table = (1..5000).to_h { |i| ["k#{i}", [i, { a: i.to_s }]] }
JSON.parse(JSON.generate(table)); table.delete_if { |k, v| v[0].odd? }
4.times.map { Thread.new { Set.new((1..1000).map { |i| "x#{i}".gsub(/x/, "y") }) } }.each(&:join)
$stdout.write("up"); $stdout.flush; gets
"""
NODE = """
const x = []; for (let i = 0; i < 9999; ++i) x.push({i, s: 'v' + i});
const text = JSON.stringify(x); const zlib = require('zlib'), crypto = require('crypto');
zlib.gunzipSync(zlib.gzipSync(text)); crypto.createHash('sha256').update(text).digest('hex');
setTimeout(() => console.log('up'), 10); process.stdin.resume()
"""
PHP = """
$a = []; for ($i = 0; $i < 5000; $i++) $a["k$i"] = ["x" => $i, "s" => "v$i"];
json_decode(json_encode($a), true); preg_match_all("/(\\d+)/", serialize($a), $m); ksort($a);
echo "up"; fgets(STDIN);
"""
LUA = b"""t = {} for i = 1, 20000 do t[i] = {i, 'v' .. i, f = function() return i end} end
for i = 1, 10000 do t[i] = nil end s = string.rep('ab', 1000):gsub('a', {a = 'c'})
co = coroutine.wrap(function() coroutine.yield(1) end) co() print('up')
"""
TCL = b"""for {set i 0} {$i < 9999} {incr i} {set a($i) [list b $i]; dict set d $i x}
proc f {n} {expr {$n < 2 ? 1 : $n * [f [expr {$n - 1}]]}}
f 50; regexp -all -inline {\\d+} [array get a]; unset a; puts up; flush stdout
"""
GUILE = b"""(define x (map (lambda (i) (cons i (number->string i))) (iota 20000)))
(define h (make-hash-table)) (for-each (lambda (p) (hash-set! h (car p) (cdr p))) x)
(use-modules (ice-9 regex)) (string-match "a+" "caab") (gc) 'up
(force-output)
"""
SQL = b"""create table t(a, b); create table u(a primary key, b);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
insert into t select i, 'v' || i from n; insert into u select * from t;
create index i on t(b); select count(*) from t join u using (b);
update t set b = b || 'x' where a % 2; delete from u where a % 3 = 0;
select count(*) from json_each('[1, {"a": 2}]'); pragma integrity_check;
.system echo up
"""
BASH = """
declare -A map; f() { local a=("$@"); map[$1]=${a[*]^^}; }
for i in {1..500}; do f "$i" $(printf %s-$i x); done
[[ abc-12 =~ ([a-z]+)-([0-9]+) ]]; trap 'true' USR1; unset 'map[3]'; echo up; read x
"""
DASH = """
f() { x="$x$1"; }; i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); f $i; done
for w in $(echo a b c) /usr/b*; do case $w in a) y=${w%a};; esac; done
trap true USR1; alias l=ls; unset x; echo up; read x
"""
R = b"""m <- lm(dist ~ speed + I(speed^2), cars); s <- summary(m); x <- matrix(runif(40000), 200)
y <- solve(x); l <- lapply(1:5000, function(i) list(i, as.character(i)))
p <- gsub("a", "b", rep("banana", 1000)); invisible(gc()); cat("up\\n")
"""
JAVA = """
import java.util.*; import java.util.stream.*; import java.util.zip.*;
class Idle { public static void main(String[] a) throws Exception {
  Map<String, List<Integer>> m = IntStream.range(0, 20000).boxed()
    .collect(Collectors.groupingBy(i -> "k" + i % 1000));
  Thread[] t = new Thread[4];
  for (int i = 0; i < 4; i++) (t[i] = new Thread(() -> new CRC32().update(m.toString().getBytes())))
    .start();
  for (Thread x : t) x.join();
  Deflater d = new Deflater(); d.setInput(new byte[100000]); d.finish(); d.deflate(new byte[9999]);
  System.gc(); System.out.println("up"); System.in.read(); m.clear(); d.end(); } }
"""
GDB = b"""info functions mallo
break malloc
ptype struct malloc_state
info scope malloc
list malloc
info line free
echo up\\n
"""
LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
R_HOME = "/usr/lib/R"
GIT_TYPED = b"HEAD\nHEAD:README.md\nHEAD^{tree}\nHEAD~1\nup\n"

_GIT = ("git", "-C", str(REPOSITORY))


@contextmanager
def java(stage: Stage) -> Iterator[Processes]:
    """Compile and run a program: the compiler works in the same process."""
    source = stage.folder / "Idle.java"
    source.write_text(JAVA)
    with Waiting("default-jdk-headless", ("java", str(source)))(stage) as processes:
        yield processes


@contextmanager
def git_log(stage: Stage) -> Iterator[Processes]:
    """Stop in the middle of the work: nobody reads the output."""
    command = [*stage.prefix, need("git", "git"), *_GIT[1:], "--no-pager", "log", "-p", "--stat"]
    with program(command, stdout=subprocess.PIPE) as process:
        # write(1, ...); how many bytes fill a pipe depends on how they were written.
        state = Path(f"/proc/{process.pid}/syscall")
        wait_until(lambda: state.read_text().startswith("1 0x1 "), "the pipe is full")
        yield {"git": process.pid}


@contextmanager
def vim(stage: Stage) -> Iterator[Processes]:
    """Edit a file in a terminal."""
    text, done = stage.folder / "text.py", stage.folder / "up"
    text.write_bytes(Path(__file__).read_bytes())
    asked = ["syntax on", "normal GoNew line", "%s/stage/scene/g", "normal ggdwu", "split", "vs"]
    said = " ".join(f"-c '{word}'" for word in [*asked, f'call writefile(["up"], "{done}")'])
    command = " ".join(["exec", *stage.prefix, need("vim", "vim"), "-n", said, str(text)])
    terminal = [need("script", "bsdutils"), "-q", "-c", command, "/dev/null"]
    with program(terminal, env={**os.environ, "TERM": "xterm", "SHELL": "/bin/sh"}) as process:
        wait_until(done.exists, "vim has worked", 300)
        (pid,) = children(process.pid)
        wait_blocked(pid)
        yield {"vim": pid}


COMMANDS: dict[str, Scene] = {
    "python3": Waiting("python3", ("/usr/bin/python3", "-c", PYTHON)),
    "python3 of the tests": Waiting("python3", (sys.executable, "-c", PYTHON)),
    "perl": Waiting("perl", ("perl", "-e", PERL)),
    "ruby": Waiting("ruby", ("ruby", "-e", RUBY)),
    "node": Waiting("nodejs", ("node", "-e", NODE)),
    "php": Waiting("php-cli", ("php", "-r", PHP)),
    "lua5.4": Waiting("lua5.4", ("lua5.4", "-i"), LUA),
    "tclsh": Waiting("tcl", ("tclsh",), TCL),
    "guile": Waiting("guile-3.0", ("guile", "-q"), GUILE),
    "R": Waiting(
        "r-base-core",
        (f"{R_HOME}/bin/exec/R", "--vanilla", "--no-echo"),
        R,
        (("R_HOME", R_HOME), ("LD_LIBRARY_PATH", f"{R_HOME}/lib")),
    ),
    "java": java,
    "bash": Waiting("bash", ("bash", "-c", BASH)),
    "dash": Waiting("dash", ("dash", "-c", DASH)),
    "sqlite3": Waiting("sqlite3", ("sqlite3",), SQL),
    "git cat-file": Waiting("git", (*_GIT, "cat-file", "--batch"), GIT_TYPED),
    "git log": git_log,
    "gdb": Waiting("gdb", ("gdb", "-q", "-nx", LIBC), GDB),
    "vim": vim,
}
