"""What words on the command line mean, and that only what they need is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import CALL_MAIN, LEAKY, Install, Runner, assert_refused
from streams import Stream

from reachscan.cli import commands


def test_help_fits_one_screen(run: Runner) -> None:
    done = run("--help")
    assert done.status == 0
    assert len(done.out.splitlines()) <= 30
    assert max(map(len, done.out.splitlines())) <= 80
    assert "reachscan report day1.rsc" in done.out


HEAVY = {
    "numpy",
    "elftools",
    "demangle",
    "psutil",
    "reachscan.grouping.folding",
    "reachscan.grouping.struct_candidates",
}
"""What takes longer to load than a small process takes to be scanned."""
FOR_OPTIONS = {"click"}
"""What is not needed where there are no options."""


def loaded(*words: object) -> set[str]:
    """Return the modules that are loaded when a command has done its work."""
    script = """if True:
        import sys
        from reachscan.cli.main import main
        try:
            main()
        finally:
            print(*sys.modules, file=sys.stderr)
    """
    command = [sys.executable, "-c", script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout
    return set(done.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    assert not loaded("--help") & HEAVY


def test_a_scan_without_leaks_loads_nothing_heavy(target: int, fake_helper: Install) -> None:
    fake_helper(Stream().encoded())
    assert not loaded(target) & (HEAVY | FOR_OPTIONS)
    assert not loaded("scan", target, "--contents", 0) & HEAVY


@pytest.mark.parametrize("name", commands.SUMMARIES)
def test_every_command_is_there_and_explains_itself(run: Runner, name: str) -> None:
    done = run(name, "--help")
    assert done.status == 0
    assert f"Usage: reachscan {name} " in done.out
    assert "\\b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_version(run: Runner) -> None:
    assert run("--version").out.startswith("reachscan 0.")


@pytest.mark.parametrize(
    "words",
    [
        ("1", "--contents", "4097"),
        ("1", "--contents", "-1"),
        ("1", "--limit", "-1"),
        ("1", "--limit", "many"),
        ("1", "--method", "magic"),
        ("1", "--threads", "0"),
        ("1", "--timeout", "0"),
        ("1", "--timeout", "nan"),
        ("watch", "1", "--every", "inf"),
        ("where", "1", "--for", "1e99"),
        ("1", "--confirm", "0"),
        ("1", "--thorough", "--confirm", "2"),
        ("1", "--thorough", "--method", "live"),
        ("1", "--confirm-every", "-1"),
        ("1", "--confirm-every", "2"),
        ("watch", "1", "--confirm", "1", "--confirm-every", "2"),
        ("heap", "1", "--format", "heapdump", "--per-thread"),
        ("1", "--format", "raphael", "--weight", "count"),
        ("core", "/bin/sh", "--heap", "--strict"),
        ("core", "/bin/sh", "--heap", "--baseline", "/bin/sh"),
        ("core", "/bin/sh", "--refs", "0x10", "--suppressions", "/bin/sh"),
        ("1", "--format", "xml"),
        ("1", "--json", "--format", "text"),
        ("1", "2"),
        ("scan",),
        ("report",),
        ("1", "-o", ""),
        ("1", "-o", "/"),
        ("1", "-o", "/no/such/directory/file"),
        ("1", "-o", "/dev/null/file"),
        ("1", "--save", "/"),
        ("1", "--save", "/no/such/directory/file"),
        ("1", "--save", "-"),
        ("1", "--baseline", "/no/such/file"),
        ("1", "--baseline", "/"),
        ("1", "--suppressions", "/no/such/file"),
        ("1", "--suppressions", "/"),
        ("heap", "1", "--save", "/no/such/directory/file"),
        ("explain", "1", "4096", "-o", "/no/such/directory/file"),
        ("report", "/no/such/file"),
        ("report", "/"),
        ("core", "/no/such/file"),
        ("core", "/"),
        ("core", "/dev/null", "--root", "/no/such/directory"),
        ("run", "-o", "/no/such/directory/file", "--", "true"),
        ("diff", "/no/such/file", "/no/such/file"),
        ("1", "-o", "/tmp/same", "--save", "/tmp/same"),
        ("--nonsense",),
    ],
    ids=" ".join,
)
def test_bad_usage(run: Runner, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.status == 2
    assert done.out == ""
    assert "Error" in done.talk


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("report", "/dev/null/x"), "/dev/null/x cannot be read: Not a directory"),
        (("report", "no\0file"), "embedded null"),
        (("1", "--timeout", "nan"), "'nan' is not a number of seconds (at most 24 days)"),
        (("attach", "1", "--sizes", "5-3"), "the range 5-3 is reversed"),
        (("attach", "1", "--memory", "x"), "'x' is not a size; examples: 512, 64K, 2M"),
        (("attach", "1", "--module", "("), "'(' is not a valid extended regular expression: "),
        (("scan", "1", "--format", "xml"), "scan cannot write the format 'xml'; choose text, json"),
        (("1", "--all-processes", "--save", "x"), "--save covers a single process; leave out"),
        (("explain", "1", "0"), "0 is out of range: addresses go from 0x1 to 0x"),
        (("explain", "1", "1K"), "'1K' is not an address"),
        (("attach", "1", "--sample", "0"), "0 is less than 1 byte"),
        (("attach", "1", "--memory", "1K"), "1K is less than 1048576 bytes"),
    ],
)
def test_bad_usage_names_the_cause(run: Runner, words: tuple[str, ...], why: str) -> None:
    done = run(*words)
    assert (done.status, why in " ".join(done.talk.split())) == (2, True), done.talk


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("heep 123", "heap"),
        ("wacth nginx --every 5", "watch"),
        ("exlpain nginx 0x10", "explain"),
        ("repot", "report"),
        ("help", "--help"),
        ("help scan", "--help"),
    ],
)
def test_a_mistyped_command_is_told_which_was_meant(run: Runner, words: str, meant: str) -> None:
    done = run(*words.split())
    assert done.status == (2 if " " in words else 3)
    assert f"`reachscan {meant}`" in done.talk
    assert f"'{words.split()[0]}'" in done.talk


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (LEAKY.encoded(), "there is a file of that name: `reachscan report '{}'` reads it"),
        (b"\x7fELF" + bytes(12) + b"\4\0", "there is a file of that name: `reachscan core '{}'`"),
        (b"\x7fELF" + bytes(12) + b"\2\0", "list the processes with `ps -e`"),
    ],
    ids=["scan", "core", "program"],
)
def test_a_file_instead_of_a_process_is_told_which_command_reads_it(
    run: Runner, tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "a file"
    file.write_bytes(content)
    for words in ([file], ["--json", file], ["scan", file]):
        assert_refused(run(*words), says.format(file))


@pytest.mark.parametrize("words", ["redis --every 5", "1 2", "heap 1 2", "redis"])
def test_nothing_is_guessed_where_no_command_is_alike(run: Runner, words: str) -> None:
    assert "did you mean" not in run(*words.split()).talk


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("reachscan 4711 --max", "--max-pause"),
        ("reachscan bash --method li", "live"),
        ("reachscan heap 4711 --js", "--json"),
        ("reachscan --js", "--json"),
        ("reachscan he", "heap"),
    ],
)
def test_shells_can_complete(words: str, expected: str) -> None:
    variables = {
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
        "_REACHSCAN_COMPLETE": "bash_complete",
    }
    command = [sys.executable, "-c", CALL_MAIN]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == [f"plain,{expected}"]
