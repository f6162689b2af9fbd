"""Interpreters, compilers and what they make, at work: one of each kind of runtime."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from idle_programs import Processes, Scene, Stage, Waiting
from victims import need

RACKET = """
(define h (make-hash)) (for ([i 20000]) (hash-set! h i (list i (number->string i))))
(define b (for/list ([i 100]) (expt 3 i))) (regexp-match* #rx"[0-9]+" (format "~a" b))
(require ffi/unsafe json) (define m (malloc 'raw 64)) (jsexpr->string (hash 'a (list 1 2)))
(define t (thread (lambda () (collect-garbage)))) (thread-wait t) (displayln "up")
(flush-output) (void (read-line))
"""
CHEZ = b"""(define v (make-vector 20000 0))
(do ((i 0 (+ i 1))) ((= i 20000)) (vector-set! v i (cons i (number->string i))))
(define kept (map (lambda (i) (foreign-alloc 64)) (iota 100)))
(define c (compile '(lambda (x) (* x x)))) (collect) (display "up\\n") (flush-output-port)
"""
LUAJIT = """
local ffi = require 'ffi'; ffi.cdef 'void *malloc(size_t); void free(void *);'
local kept, t = {}, {}
for i = 1, 100 do kept[i] = ffi.C.malloc(48) end
for i = 1, 50000 do t[i] = {i, s = 'v' .. i} end; for i = 1, 9999 do t[i] = nil end
collectgarbage(); print('up'); io.stdout:flush(); io.read(); print(#kept, #t)
"""
ERLANG = (
    "T = ets:new(t, []), [ets:insert(T, {I, integer_to_list(I)}) || I <- lists:seq(1, 20000)],"
    "P = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, 500)],"
    're:run(<<"abc12">>, "[0-9]+"), zlib:zip(binary:copy(<<"x">>, 99999)), crypto:hash(sha256,'
    ' "x"), io:format("up~n"), io:get_line(""), P.'
)
ELIXIR = """
kept = for i <- 1..5000, into: %{}, do: {i, Integer.to_string(i)}
tasks = for _ <- 1..50, do: Task.async(fn -> Enum.sum(1..1000) end)
Enum.map(tasks, &Task.await/1); Regex.run(~r/\\d+/, "abc12")
IO.puts("up"); IO.gets(""); IO.inspect(map_size(kept))
"""
MONO = """
using System; using System.Collections.Generic; using System.Linq; using System.Threading;
using System.Text.RegularExpressions; using System.Runtime.InteropServices;
class Idle { static void Main() {
  var m = Enumerable.Range(0, 20000).GroupBy(i => "k" + i % 999).ToDictionary(g => g.Key);
  var t = Enumerable.Range(0, 4).Select(_ => new Thread(() => string.Join(",", m.Keys))).ToList();
  t.ForEach(x => x.Start()); t.ForEach(x => x.Join()); Regex.Matches("a1b22", "[0-9]+");
  var kept = Enumerable.Range(0, 100).Select(i => Marshal.AllocHGlobal(64)).ToList();
  try { throw new Exception("x"); } catch (Exception e) { e.ToString(); }
  GC.Collect(); Console.WriteLine("up"); Console.ReadLine(); Console.WriteLine(kept.Count); } }
"""
GO = """
package main
/*
#include <stdlib.h>
struct node { struct node *next; int v; };
*/
import "C"
import ("bufio"; "encoding/json"; "fmt"; "os"; "runtime"; "sync"; "unsafe")
var kept []unsafe.Pointer
func main() {
  m := map[string][]int{}
  for i := 0; i < 20000; i++ { k := fmt.Sprint(i % 999); m[k] = append(m[k], i) }
  var wait sync.WaitGroup
  for i := 0; i < 8; i++ { wait.Add(1); go func() { json.Marshal(m); wait.Done() }() }
  for i := 0; i < 100; i++ { kept = append(kept, C.malloc(48)) }
  wait.Wait(); runtime.GC(); fmt.Println("up"); bufio.NewReader(os.Stdin).ReadString('\\n')
  runtime.KeepAlive(kept)
}
"""
RUST = """
use std::{collections::*, io::*, rc::*, sync::*, thread};
struct Node { parent: Weak<Node>, children: std::cell::RefCell<Vec<Rc<Node>>> }
fn main() {
  let root = Rc::new(Node { parent: Weak::new(), children: Default::default() });
  for _ in 0..999 {
    let child = Node { parent: Rc::downgrade(&root), children: Default::default() };
    root.children.borrow_mut().push(Rc::new(child));
  }
  let map: BTreeMap<u32, String> = (0..5000).map(|i| (i, i.to_string())).collect();
  let hash: HashMap<String, Box<[u8]>> = (0..5000).map(|i| (i.to_string(), vec![0; 40].into()))
    .collect();
  let shared = Arc::new(Mutex::new(VecDeque::new()));
  let threads: Vec<_> = (0..4).map(|i| { let s = shared.clone();
    thread::spawn(move || for k in 0..500 { s.lock().unwrap().push_back(Box::new(i * k)) }) })
    .collect();
  for t in threads { t.join().unwrap() }
  println!("up"); stdout().flush().unwrap(); stdin().read_line(&mut String::new()).unwrap();
  println!("{} {} {} {}", map.len(), hash.len(), root.children.borrow()[0].parent.strong_count(),
           shared.lock().unwrap().len());
}
"""
OCAML = b"""let t = Hashtbl.create 10;;
for i = 1 to 20000 do Hashtbl.add t i (string_of_int i) done;;
module M = Map.Make (String);; let m = List.fold_left (fun m i -> M.add (string_of_int i) i m)
M.empty (List.init 5000 Fun.id);; let b = Buffer.create 10;; Gc.compact ();;
let a = Bigarray.Array1.create Bigarray.float64 Bigarray.c_layout 1000;;
print_endline "up";;
"""
PROLOG = (
    "numlist(1, 20000, L), forall(member(X, L), assertz(f(X, y(X)))), msort(L, _),"
    "atom_codes(A, [97|[98]]), findall(A-X, member(X, L), R), length(R, _), garbage_collect,"
    "string_concat(a, b, _), thread_create(true, I), thread_join(I), writeln(up), flush_output,"
    "read(_)"
)
FORTH = b""": f ( n -- n ) dup 2 < if drop 1 else dup 1- recurse * then ;
variable x  100 cells allocate throw x !  10 f . 1000 allocate throw free throw
: g 1000 0 do i pad ! loop ; g s" up" type cr
"""
LISP = b"""(defparameter *h* (make-hash-table :test 'equal))
(dotimes (i 20000) (setf (gethash (format nil "~a" i) *h*) (list i)))
(compile (defun f (x) (if (< x 2) 1 (* x (f (- x 1))))))
(f 50) (format t "up~%") (finish-output)
"""
MAXIMA = b'integrate(sin(x)^3, x); factor(x^8 - 1); diff(exp(x^2), x, 3); print("up");\n'
OCTAVE = b"""a = rand(200); b = a \\ a; s = struct('x', {1, 2}); c = cell(99); [u, v] = eig(a);
x = regexprep('abc', 'b', 'd'); y = fft(a); m = containers.Map(); m('k') = 1; disp('up'); fflush(1);
"""
NIM = """
import std/[tables, strutils, json, sequtils]
var t = initTable[string, seq[int]]()
for i in 0 ..< 20000: t.mgetOrPut($(i mod 999), @[]).add(i)
let j = parseJson("{\\"a\\": [1, 2]}"); discard toSeq(1..9).mapIt($it).join(",")
echo "up"; discard stdin.readLine(); echo t.len, j
"""
PYPY = """
import json, sys, threading
d = {str(i): [i, {"a": i}] for i in range(20000)}; json.loads(json.dumps(d))
t = [threading.Thread(target=lambda: sorted(d)) for _ in range(4)]
[x.start() for x in t]; [x.join() for x in t]
import ctypes; kept = [ctypes.create_string_buffer(64) for _ in range(100)]
print("up"); sys.stdout.flush(); sys.stdin.readline()
"""
SCHEME = b"""(define l (let f ((i 0)) (if (= i 20000) '() (cons (number->string i) (f (+ i 1))))))
(define v (list->vector l)) (display (string-append "u" "p")) (newline) (flush-output)
"""
AWK = (
    'BEGIN { for (i = 0; i < 20000; i++) a[i] = "v" i; for (i = 0; i < 9999; i++) delete a[i];'
    ' s = "abc"; gsub(/b/, "x", s); split("a b c", p); asort(a, b); print "up"; fflush();'
    " getline; print length(a) }"
)
MAWK = AWK.replace(" asort(a, b);", "")
BC = b"define f(n) { if (n < 2) return 1; return n * f(n - 1); }\nscale=50; f(90) / 7\n"
BC += b'for (i = 0; i < 999; i++) a[i] = i ^ 9\ne(1)\nprint "up\\n"\n'
GAP = b"G := SymmetricGroup(6);; Size(G); ConjugacyClasses(G);; List([1..5000], i -> [i]);;"
GAP += b'Factorial(50); Print("up\\n");\n'
PARI = b'factor(2^101 - 1); v = vector(5000, i, i^2); bnfinit(x^2 + 23); print("up");\n'
ZSH = """
typeset -A map; f() { local a=("$@"); map[$1]=${(U)a}; }
for i in {1..500}; do f $i x-$i y; done; [[ abc-12 =~ '([a-z]+)' ]]; autoload -Uz compinit
zmodload zsh/zutil zsh/mathfunc; l=(/usr/b*(N)); unset 'map[3]'; echo up; read x
"""
FISH = """
for i in (seq 300); set -a list v$i; set -g m_$i (string upper x$i); end
function f; echo (count $argv); end; f $list; string match -r '[0-9]+' abc12; math 2 ^ 10
echo up; read x
"""
TCSH = """
set l = ()
foreach i (`seq 300`)
  set l = ($l v$i)
end
alias ll 'ls -l'; @ n = 3 * 4; echo up; set x = $<
"""
KSH = """
typeset -A map; function f { typeset a="$1"; map[$1]="${a}x"; }
for ((i = 0; i < 500; i++)); do f $i; done; [[ abc12 == *+([0-9]) ]]; unset map[3]; echo up; read x
"""
EXPECT = (
    "set d [dict create a 1]; spawn cat; send hi\\n; expect hi; puts up; flush stdout; gets stdin"
)

HASKELL = """
import Control.Concurrent
import Foreign
import System.IO
main = do
  let table = zip [1 .. 20000 :: Int] (map show [1 :: Int ..])
  kept <- mapM mallocBytes (replicate 100 48) :: IO [Ptr ()]
  results <- newEmptyMVar
  mapM_ (\\k -> forkIO (putMVar results $! sum (map ((+ k) . fst) table))) [1 .. 4]
  sums <- mapM (const (takeMVar results)) [1 .. 4 :: Int]
  print (sum sums); putStrLn "up"; hFlush stdout; _ <- getLine
  print (length kept, lookup 20000 table)
"""
GHCI = b"""let m = zip [1..1000] (map show [1..])
import qualified Data.IORef as R
c <- R.newIORef m
sum (map fst m)
putStrLn "up"
"""
PASCAL = """program idle; uses classes, sysutils; var l: TStringList; i: integer; s: string;
begin l := TStringList.Create; for i := 1 to 5000 do l.Add('v' + IntToStr(i)); l.Sort;
writeln('up'); flush(output); readln(s); writeln(l.Count); end.
"""
FORTRAN = """program idle
  type node
    type(node), pointer :: next => null()
    real, allocatable :: x(:)
  end type
  type(node), pointer :: head, n
  character(9) :: s
  integer :: i
  nullify(head)
  do i = 1, 5000
    allocate(n); allocate(n%x(mod(i, 9) + 1)); n%next => head; head => n
  end do
  print *, 'up'; flush(6); read(*, *) s; print *, associated(head)
end program
"""
ADA = """with Ada.Text_IO; with Ada.Containers.Indefinite_Ordered_Maps;
procedure Idle is
  package M is new Ada.Containers.Indefinite_Ordered_Maps (Integer, String);
  T : M.Map; task type W; task body W is begin null; end W; X : array (1 .. 4) of W;
begin
  for I in 1 .. 5000 loop T.Insert (I, Integer'Image (I)); end loop;
  Ada.Text_IO.Put_Line ("up"); Ada.Text_IO.Flush; Ada.Text_IO.Put_Line (Ada.Text_IO.Get_Line);
end Idle;
"""
VALA = """int main() {
  var m = new HashTable<string, string>(str_hash, str_equal); var l = new List<string>();
  for (int i = 0; i < 5000; i++) { m.insert(@"k$i", @"v$i"); l.append(@"x$i"); }
  try { var r = new Regex("[0-9]+"); r.replace("a1", 2, 0, "b"); } catch (Error e) {}
  stdout.printf("up\\n"); stdout.flush(); stdin.read_line();
  stdout.printf("%u\\n", m.size()); return 0; }
"""
GJS = """
const {GLib, Gio} = imports.gi; let t = {};
for (let i = 0; i < 5000; i++) t[i] = new Gio.SimpleAction({name: 'a' + i});
let v = new GLib.Variant('a{sv}', {a: new GLib.Variant('i', 3)});
let m = JSON.stringify(Object.keys(t)); GLib.file_get_contents('/etc/passwd'); print('up');
let input = new Gio.DataInputStream({base_stream: Gio.File.new_for_path('/dev/stdin').read(null)});
input.read_line(null); print(m.length);
"""
RAKU = """
my %h = (^5000).map({ $_ => [$_, "v$_"] }); my @t = (^4).map({ start { (^999).map(* ** 2).sum } });
await @t; "abc12" ~~ /\\d+/; say "up"; $*OUT.flush; get; say %h.elems
"""
POLY = b"""val l = List.tabulate (20000, fn i => (i, Int.toString i));
fun f 0 = 1 | f n = n * f (n - 1); val v = Vector.fromList l; print "up\\n";
"""
NEWLISP = b"""(set 'l (map string (sequence 1 5000)))
(define (f n) (if (< n 2) 1 (* n (f (- n 1)))))
(f 10) (println "up")
"""
DUKTAPE = b"""var a = []; for (var i = 0; i < 5000; i++) a.push({i: i, s: 'v' + i});
JSON.parse(JSON.stringify(a)); print('up');
"""


@dataclass(frozen=True)
class Compiled:
    """A program that is compiled first."""

    package: str
    compiler: tuple[str, ...]
    """`{folder}` stands for where the source is and the program will be: `idle`."""
    source: str
    text: str
    runner: tuple[str, ...] = ()

    @contextmanager
    def __call__(self, stage: Stage) -> Iterator[Processes]:
        (stage.folder / self.source).write_text(self.text)
        words = [word.replace("{folder}", str(stage.folder)) for word in self.compiler]
        words[0] = need(words[0], self.package)
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=stage.folder)
        if done.returncode != 0:
            pytest.skip(f"{words[0]} does not compile it: {' '.join(done.stderr.split())[-200:]}")
        built = str(stage.folder / "idle")
        with Waiting(self.package, (*self.runner, built))(stage) as processes:
            (pid,) = processes.values()
            yield {f"program of {self.compiler[0]}": pid}


CACHES = (("HOME", "/tmp"),)
LANGUAGES: dict[str, Scene] = {
    "racket": Waiting("racket", ("racket", "-e", RACKET)),
    "chez": Waiting("chezscheme", ("petite", "-q"), CHEZ),
    "luajit": Waiting("luajit", ("luajit", "-e", LUAJIT)),
    "erlang": Waiting("erlang-base erlang-crypto", ("erl", "-noshell", "-eval", ERLANG)),
    "elixir": Waiting("elixir", ("elixir", "-e", ELIXIR)),
    "mono": Compiled(
        "mono-mcs mono-runtime",
        ("mcs", "-out:{folder}/idle", "{folder}/Idle.cs"),
        "Idle.cs",
        MONO,
        ("mono",),
    ),
    "go": Compiled(
        "golang-go", ("go", "build", "-o", "{folder}/idle", "{folder}/idle.go"), "idle.go", GO
    ),
    "rust": Compiled(
        "rustc", ("rustc", "-O", "-o", "{folder}/idle", "{folder}/idle.rs"), "idle.rs", RUST
    ),
    "nim": Compiled(
        "nim",
        ("nim", "c", "--hints:off", "-o:{folder}/idle", "--nimcache:{folder}/c", "{folder}/i.nim"),
        "i.nim",
        NIM,
    ),
    "ocaml": Waiting("ocaml", ("ocaml", "-noinit"), OCAML),
    "swipl": Waiting("swi-prolog-nox", ("swipl", "-q", "-g", PROLOG)),
    "gforth": Waiting("gforth", ("gforth",), FORTH),
    "clisp": Waiting("clisp", ("clisp", "-q", "-norc"), LISP),
    "sbcl": Waiting("sbcl", ("sbcl", "--noinform", "--no-userinit"), LISP),
    "ecl": Waiting("ecl", ("ecl", "-q"), LISP),
    "maxima": Waiting("maxima", ("maxima", "--very-quiet"), MAXIMA, CACHES),
    "octave": Waiting("octave", ("octave-cli", "-q", "--no-history"), OCTAVE),
    "pypy": Waiting("pypy3", ("pypy3", "-c", PYPY)),
    "chicken": Waiting("chicken-bin", ("csi", "-q"), SCHEME),
    "gawk": Waiting("gawk", ("gawk", AWK)),
    "mawk": Waiting("mawk", ("mawk", "-W", "interactive", MAWK)),
    "bc": Waiting("bc", ("bc", "-lq"), BC),
    "gap": Waiting("gap-core", ("gap", "-q"), GAP),
    "pari": Waiting("pari-gp", ("gp", "-qf"), PARI),
    "zsh": Waiting("zsh", ("zsh", "-fc", ZSH)),
    "fish": Waiting("fish", ("fish", "--no-config", "-c", FISH)),
    "tcsh": Waiting("tcsh", ("tcsh", "-fc", TCSH)),
    "ksh": Waiting("ksh93u+m", ("ksh93", "-c", KSH)),
    "expect": Waiting("expect", ("expect", "-c", EXPECT)),
    "haskell": Compiled(
        "ghc",
        ("ghc", "-threaded", "-O", "-o", "{folder}/idle", "{folder}/idle.hs"),
        "idle.hs",
        HASKELL,
    ),
    "ghci": Waiting("ghc", ("ghci",), GHCI),
    "pascal": Compiled(
        "fp-compiler", ("fpc", "-o{folder}/idle", "{folder}/idle.pas"), "idle.pas", PASCAL
    ),
    "fortran": Compiled(
        "gfortran", ("gfortran", "-o", "{folder}/idle", "{folder}/idle.f90"), "idle.f90", FORTRAN
    ),
    "ada": Compiled(
        "gnat", ("gnatmake", "-o", "{folder}/idle", "{folder}/idle.adb"), "idle.adb", ADA
    ),
    "vala": Compiled("valac", ("valac", "-o", "idle", "{folder}/idle.vala"), "idle.vala", VALA),
    "gjs": Waiting("gjs", ("gjs", "-c", GJS)),
    "raku": Waiting("rakudo", ("rakudo", "-e", RAKU)),
    "polyml": Waiting("polyml", ("poly",), POLY),
    "mit-scheme": Waiting("mit-scheme", ("mit-scheme", "--quiet"), SCHEME),
    "newlisp": Waiting("newlisp", ("newlisp",), NEWLISP),
    "duktape": Waiting("duktape", ("duk",), DUKTAPE),
}
