"""Targets in other namespaces and roots, of other users, with programs of other kinds."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from conftest import StartVictim
from scans import FAILED, Finished, run_cli, scan
from unharmed import Helper, Watched
from victims import Victim, build, need
from worlds import (
    NOBODY,
    OTHER,
    as_user,
    make_root,
    must_work,
    need_root,
    only_descendant,
    public_copy,
    public_folder,
    run_cli_as,
)

LEAKS = 20


def assert_leaks_found(pid: int, *options: object) -> dict[str, object]:
    report = scan(pid, "--all", *options)
    assert report["leaks"]["allocations"] == LEAKS
    print(f"served by {report['snapshot']['method']}, warnings {report['warnings']}")
    return report


PID = ["--pid", "--fork", "--mount-proc", "--kill-child"]
NAMESPACES = {
    "pid": PID,
    "mount": ["--mount"],
    "user": ["--user", "--map-root-user"],
    "all": ["--user", "--map-root-user", "--net", "--ipc", "--uts", *PID],
}


@pytest.mark.parametrize("kind", NAMESPACES)
def test_namespaces(victim: StartVictim, kind: str) -> None:
    unshare = [need("unshare", "util-linux"), *NAMESPACES[kind]]
    must_work([*unshare, "true"], f"a {kind} namespace")
    command = [*unshare, str(build("odd_heap")), "plain", str(LEAKS)]
    target = victim("odd_heap", command=command)
    assert_leaks_found(only_descendant(target.pid))


def test_child_of_the_first_process_of_a_namespace(victim: StartVictim) -> None:
    """Not the first process itself: a clone's orphan goes to the first one, which reaps it."""
    unshare = [need("unshare", "util-linux"), *PID]
    must_work([*unshare, "true"], "a PID namespace")
    shell = f"{build('odd_heap')} plain {LEAKS}; exit $?"
    target = victim("odd_heap", command=[*unshare, "sh", "-c", shell])
    assert_leaks_found(only_descendant(target.pid))


@need_root
def test_root_of_its_own(victim: StartVictim) -> None:
    """Its libraries are not where ours are: names must come from its own files."""
    with public_folder() as folder:
        make_root(folder, build("odd_heap"))
        command = [need("chroot", "coreutils"), str(folder), "/program", "plain", str(LEAKS)]
        target = victim("odd_heap", command=command)
        report = assert_leaks_found(target.pid)
        assert "build-id" not in str(report["warnings"])
        target.quit()


@need_root
def test_files_open_outside_of_its_root(victim: StartVictim) -> None:
    """They are on no mount that it sees, but on one that the helper knows to be local."""
    program = build("odd_heap")
    with public_folder() as folder:
        make_root(folder, program)
        inner = f'exec {need("chroot", "coreutils")} "$1" /program plain {LEAKS} 3<"$2"'
        command = ["sh", "-c", inner, "sh", str(folder), str(program)]
        target = victim("odd_heap", command=command)
        done = run_cli([target.pid, "--method", "track"])
        assert "server would notice" not in done.talk
        target.quit()


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
def test_program_file_has_gone(victim: StartVictim, tmp_path: Path, replaced: bool) -> None:
    """An update puts another file in the place of a running program."""
    program = tmp_path / "program"
    shutil.copy(build("odd_heap"), program)
    target = victim("odd_heap", command=[str(program), "plain", str(LEAKS)])
    program.unlink()
    if replaced:
        shutil.copy(build("checker"), program)
    assert_leaks_found(target.pid)


@need_root
def test_not_dumpable(victim: StartVictim) -> None:
    target = victim("odd_heap", "undumpable", LEAKS)
    assert_leaks_found(target.pid)


def assert_refused(done: Finished) -> None:
    assert done.status == FAILED, done
    assert "Traceback" not in done.talk and done.talk.count("\n") == 1, done.talk
    assert "permitted" in done.talk
    print(done.talk.strip())


@need_root
def test_same_user_without_rights(victim: StartVictim) -> None:
    with public_copy(build("odd_heap")) as program:
        target = victim("odd_heap", command=as_user(NOBODY, str(program), "plain", str(LEAKS)))
        # That file of the package may lie in a home folder that is closed to others, as root's.
        done = run_cli_as(NOBODY, target.pid, "--contents", 0, "--no-default-suppressions")
        assert done.status == 1, done
        assert f"{LEAKS} leaked" in done.out
        assert_refused(run_cli_as(OTHER, target.pid))
        target.quit()


@need_root
def test_same_user_may_not_look_if_not_dumpable(victim: StartVictim) -> None:
    with public_copy(build("odd_heap")) as program:
        target = victim("odd_heap", command=as_user(NOBODY, str(program), "undumpable", str(LEAKS)))
        assert_refused(run_cli_as(NOBODY, target.pid))
        assert_leaks_found(target.pid)
        target.quit()


@need_root
def test_setuid_program(victim: StartVictim) -> None:
    """Root's rights for a user's process: the user may not look, root may."""
    with public_copy(build("odd_heap")) as program:
        program.chmod(0o4755)
        target = victim("odd_heap", command=as_user(NOBODY, str(program), "plain", str(LEAKS)))
        assert_refused(run_cli_as(NOBODY, target.pid))
        assert_leaks_found(target.pid)
        target.quit()


@need_root
def test_program_with_capabilities(victim: StartVictim) -> None:
    version_2_effective, net_bind_service = 0x02000001, 1 << 10
    with public_copy(build("odd_heap")) as program:
        attribute = struct.pack("<5I", version_2_effective, net_bind_service, 0, 0, 0)
        try:
            os.setxattr(program, "security.capability", attribute)
        except OSError as error:
            pytest.skip(f"a program cannot be given capabilities here: {error}")
        target = victim("odd_heap", command=as_user(NOBODY, str(program), "plain", str(LEAKS)))
        scanned = run_cli_as(NOBODY, target.pid)
        assert_refused(scanned)
        assert "capabilities that we do not have" in scanned.talk
        recorded = run_cli_as(NOBODY, "run", "--", str(program), "plain", LEAKS)
        assert recorded.status == FAILED
        assert "runs with capabilities of its own" in recorded.talk
        target.quit()


@need_root
def test_one_capability_is_enough(victim: StartVictim, tmp_path: Path) -> None:
    """A root that may do nothing but trace, as in a container with --cap-add SYS_PTRACE."""
    target = victim("odd_heap", "plain", LEAKS)
    helper = Helper(tmp_path)
    watched = Watched(target.pid, helper)
    setpriv = need("setpriv", "util-linux")
    for rights, fine in (("-all", False), ("-all,+sys_ptrace", True)):
        limited = [setpriv, f"--inh-caps={rights}", f"--bounding-set={rights}"]
        must_work([*limited, "true"], "a process with few capabilities")
        command = [*limited, *helper.command(target.pid)]
        done = subprocess.run(command, capture_output=True, check=False)
        assert (done.returncode == 0) is fine, done.stdout[-300:]
        watched.assert_unharmed()


@pytest.mark.parametrize(
    "flags", [["-pie"], ["-no-pie"], ["-static"], ["-static-pie"]], ids=lambda flags: flags[0]
)
def test_kinds_of_programs(victim: StartVictim, flags: Sequence[str]) -> None:
    fine = ["-fPIE"] if "pie" in flags[0] and "no" not in flags[0] else []
    program = build("odd_heap", [*fine, *flags])
    target: Victim = victim("odd_heap", command=[str(program), "plain", str(LEAKS)])
    done = run_cli([target.pid, "--json"])
    print(f"{flags}: status {done.status}: {done.talk}")
    assert done.status in (1, FAILED) and "Traceback" not in done.talk
    if "static" not in flags[0]:
        assert_leaks_found(target.pid)


FROM_MEMORY = """
import os, sys
file = os.memfd_create("program")
with open(sys.argv[1], "rb") as source:
    os.sendfile(file, source.fileno(), 0, os.fstat(source.fileno()).st_size)
os.execve(file, sys.argv[1:], os.environ)
"""


@pytest.mark.parametrize("flags", [["-no-pie"], ["-static"]], ids=["dynamic", "static"])
def test_program_that_runs_from_memory(victim: StartVictim, flags: Sequence[str]) -> None:
    program = str(build("odd_heap", flags))
    command = [sys.executable, "-c", FROM_MEMORY, program, "plain", str(LEAKS)]
    assert_leaks_found(victim("odd_heap", command=command).pid)


def test_shadow_stacks(victim: StartVictim) -> None:
    """A program that is marked for control-flow enforcement; whether it is enforced, we print."""
    program = build("odd_heap", ["-fcf-protection=full", "-Wl,-z,shstk"])
    target = victim("odd_heap", command=[str(program), "plain", str(LEAKS)])
    status = Path(f"/proc/{target.pid}/status").read_text()
    print("enforced" if "x86_Thread_features:\tshstk" in status else "not enforced here")
    assert_leaks_found(target.pid)


@pytest.mark.parametrize(
    ("flags", "method", "cause"),
    [
        # A static program that never frees gets musl's simplest allocator, which keeps no records.
        (["-static"], "auto", "no known allocator"),
        (["-static"], "live", "no descriptor of the C library"),
        ([], "live", "no descriptor of the C library"),
    ],
)
def test_another_c_library(
    victim: StartVictim, tmp_path: Path, method: str, flags: list[str], cause: str
) -> None:
    """Its heap is never taken for one of glibc's."""
    compiler = need("musl-gcc", "musl-tools")
    (tmp_path / "other.c").write_text("""
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        int main(void) {
          for (int i = 0; i < 100; ++i) memset(malloc(3000), 1, 3000);
          const char ready[] = "{\\"ready\\":true}\\n";
          char end;
          return write(1, ready, sizeof ready - 1) < 0 || read(0, &end, 1) < 0;
        }
    """)
    subprocess.run([compiler, *flags, "-o", "other", "other.c"], check=True, cwd=tmp_path)
    target = victim("other", command=[str(tmp_path / "other")])
    done = run_cli([target.pid, "--method", method])
    assert done.status == FAILED and done.talk.count("\n") == 1, done.talk
    assert cause in done.talk and "only the allocators of glibc" in done.talk
