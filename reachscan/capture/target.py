"""Checks the target before it is touched: does it exist, can it be scanned, is that permitted?"""

from __future__ import annotations

import contextlib
import os
import shlex
import struct
import sys
from typing import NamedTuple

from reachscan import errors
from reachscan.recording.architectures import ALSO_RUNS

_PROC = "/proc"
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_CAP_SYS_PTRACE = 19
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD in the flags of /proc/PID/stat
_ELF_32 = 1


def check(pid: int) -> None:
    """Refuse a process that cannot be scanned, without touching it.

    Raises:
        NoSuchProcessError: no process has that id.
        UnscannableError: it is a kernel thread, a zombie, reachscan itself, or a mere thread.
        UnsupportedTargetError: it is a program for another processor.
        NotPermittedError: the kernel does not let us trace it.
    """
    if pid == os.getpid():
        raise errors.UnscannableError("reachscan cannot scan itself", "name another process")
    try:
        status = _status(pid)
        _refuse_dead(pid, status)
        _refuse_forbidden(pid)
        _refuse_foreign(pid)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise errors.NoSuchProcessError(f"there is no process {pid}") from error


def user(pid: int) -> int:
    """Return the effective user id of a process."""
    return int(_status(pid)["Uid"].split()[1])


def _status(pid: int) -> dict[str, str]:
    text = _text(f"{_PROC}/{pid}/status")
    return dict(line.split(":\t", 1) for line in text.split("\n") if ":\t" in line)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="backslashreplace") as file:
        return file.read()


def _refuse_dead(pid: int, status: dict[str, str]) -> None:
    leader = int(status["Tgid"])
    if leader != pid:
        raise errors.UnscannableError(
            f"{pid} is a thread of process {leader}", f"scan the process: reachscan {leader}"
        )
    if status["State"][0] in "ZX":
        raise _lifeless(pid, status)
    # The name is the only field that may hold spaces or parentheses; flags come seventh after it.
    fields = _text(f"{_PROC}/{pid}/stat").rpartition(")")[2]
    if int(fields.split()[6]) & _KERNEL_THREAD:
        raise errors.UnscannableError(
            f"process {pid} ({status['Name']}) is a kernel thread and has no heap",
            "name a process that is a program",
        )


def _lifeless(pid: int, status: dict[str, str]) -> errors.UnscannableError:
    if has_living_threads(pid):
        return errors.UnscannableError(
            f"the main thread of process {pid} ({status['Name']}) has ended while others run on, "
            "and memory is looked at through the main thread",
            "have it wait for the other threads (pthread_join) where it calls pthread_exit",
        )
    return errors.UnscannableError(
        f"process {pid} ({status['Name']}) is a zombie: "
        "it has exited, and its parent has not collected it",
        f"its memory is gone; the parent is process {status['PPid']}",
    )


def has_living_threads(pid: int) -> bool:
    """Return whether any thread of a process still runs; its main thread may have exited."""
    for thread in os.listdir(f"{_PROC}/{pid}/task"):
        with contextlib.suppress(OSError):  # it is exiting
            if _text(f"{_PROC}/{pid}/task/{thread}/stat").rpartition(")")[2].split()[0] not in "ZX":
                return True
    return False


def _refuse_foreign(pid: int) -> None:
    head = _head(f"{_PROC}/{pid}/exe")
    if len(head) < 20 or head[:4] != b"\x7fELF":
        raise errors.UnsupportedTargetError(f"the program of process {pid} is not an ELF file")
    machine, own = _machine(head), _machine(_head("/proc/self/exe"))
    if head[4] == _ELF_32 and machine == ALSO_RUNS.get(own):
        return
    if head[4] == _ELF_32:
        raise errors.UnsupportedTargetError(f"process {pid} is a 32-bit program")
    if machine != own:
        raise errors.UnsupportedTargetError(
            f"process {pid} is a program for another processor (ELF machine {machine})"
        )


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(20)


def _machine(head: bytes) -> int:
    (machine,) = struct.unpack_from("<H", head, 18)
    return int(machine)


def _refuse_forbidden(pid: int) -> None:
    # Opening (not reading) this file needs the permission that attaching needs.
    try:
        with open(f"{_PROC}/{pid}/mem", "rb"):
            pass
    except PermissionError as error:
        raise explain_refusal(pid) from error


class Access(NamedTuple):
    """What the kernel considers when one process attaches to another.

    Attributes:
        uid, target_uid: effective user ids.
        dumpable: the target's own user may trace it.
        privileged: the target has capabilities that we do not have.
        capable: we have CAP_SYS_PTRACE in our user namespace.
        same_namespace: the target is in our user namespace; None if that is unknown.
        yama: kernel.yama.ptrace_scope; 0 without Yama.
    """

    uid: int
    target_uid: int
    dumpable: bool
    privileged: bool
    capable: bool
    same_namespace: bool | None
    yama: int


def explain_refusal(
    pid: int, refused: errors.ReachscanError | None = None
) -> errors.ReachscanError:
    """Return the error that says why the kernel refuses access, and what to do.

    Args:
        pid: the target.
        refused: the helper's error, if the kernel refused the helper.
    """
    try:
        why, what_to_do = diagnose(_access(pid))
    except (OSError, KeyError) as error:
        if refused:
            return refused
        return errors.NoSuchProcessError(f"process {pid} exited ({error})")
    if refused:
        return errors.NotPermittedError(refused.sentence, what_to_do)
    return errors.NotPermittedError(f"not permitted to look into process {pid}: {why}", what_to_do)


def _access(pid: int) -> Access:
    ours = _status(os.getpid())
    target_uid = user(pid)
    owner = os.stat(f"{_PROC}/{pid}").st_uid
    return Access(
        uid=os.geteuid(),
        target_uid=target_uid,
        dumpable=owner == target_uid,
        privileged=bool(int(_status(pid)["CapPrm"], 16) & ~int(ours["CapPrm"], 16)),
        capable=bool(int(ours["CapEff"], 16) >> _CAP_SYS_PTRACE & 1),
        same_namespace=_same_user_namespace(pid),
        yama=int(_text(_YAMA)) if os.path.exists(_YAMA) else 0,
    )


def _same_user_namespace(pid: int) -> bool | None:
    try:
        theirs = os.readlink(f"{_PROC}/{pid}/ns/user")
    except PermissionError:
        return None
    return theirs == os.readlink(f"{_PROC}/self/ns/user")


def root_command() -> str:
    """Return the same command line for root, with a full path: sudo searches few folders."""
    called = os.path.abspath(sys.argv[0])
    if os.path.isfile(called) and os.access(called, os.X_OK):
        return shlex.join(["sudo", called, *sys.argv[1:]])
    python_and_all = _text(f"{_PROC}/self/cmdline").split("\0")[:-1]
    return shlex.join(["sudo", sys.executable, *python_and_all[1:]])


def diagnose(access: Access) -> tuple[str, str]:
    """Return why access is refused, and what to do."""
    as_root = f"run it as root: {root_command()}"
    if access.yama >= 3:
        return (
            "Yama forbids every attach on this machine (kernel.yama.ptrace_scope is 3)",
            "it can only be lifted by a reboot with another kernel.yama.ptrace_scope",
        )
    if access.capable and access.same_namespace is not True:
        return (
            "it lives in a user namespace in which we have no rights",
            "run reachscan where that namespace was made, usually on the host",
        )
    if access.capable:
        return (
            "a security module or a container policy forbids it",
            "look into `dmesg` for a refusal by SELinux or AppArmor; "
            "in a container, start it with --cap-add SYS_PTRACE",
        )
    if access.uid == 0:
        return (
            "we are root, but without the capability CAP_SYS_PTRACE",
            "start the container with --cap-add SYS_PTRACE, or run reachscan on the host",
        )
    if access.uid != access.target_uid:
        return (f"it belongs to user {access.target_uid} and we are user {access.uid}", as_root)
    if access.privileged:
        return ("it has capabilities that we do not have (see getcap(8))", as_root)
    if not access.dumpable:
        return (
            "it has changed its privileges or closed itself to inspection (it is not dumpable)",
            as_root,
        )
    if access.yama:
        return (
            f"Yama lets only root attach (kernel.yama.ptrace_scope is {access.yama})",
            f"{as_root}; or allow it for all: sudo sysctl kernel.yama.ptrace_scope=0",
        )
    return ("it may have more rights than we have, or live in another user namespace", as_root)
