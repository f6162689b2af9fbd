"""Boots a machine with another processor in QEMU, and runs shell scripts in it.

    python tests/support/emulator.py

fetches what that takes: Debian's kernel and a few programs, from the mirror that this machine's own
apt sources name. The guest has no disk and no network: its root is a folder of this machine, and so
is /mnt, where it finds what it is to run and leaves what it has to say.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glibc_suites import UnavailableError, keep_links_inside, private_apt, run

SUITE = "bookworm"
PACKAGES = (
    *("bash", "busybox-static", "coreutils", "jq", "libc-bin", "libjemalloc2", "nginx-light"),
    *("python3", "redis-server"),
)
SHORT_PACKAGES = ("libc6",)
"""For programs of 32-bit Arm, which a machine with pages of 4 KiB runs, too."""
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p")
"""Of the kernel: the two shared folders, and the line by which scripts are started."""
MODULE_FOLDERS = re.compile(r"/kernel/(net/9p|fs/(9p|netfs|fscache)|drivers/(virtio|char))/")
UNPACKED: dict[str, Callable[[bytes], bytes]] = {".ko": bytes, ".ko.xz": lzma.decompress}
SHELL = Path(__file__).with_name("guest_shell.py")
PATIENCE = 600.0
"""Seconds for one script. Programs run thirty times slower there."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of Debian, and the machine that runs it."""

    suite: str
    package: str
    """Names the newest one."""
    architectures: tuple[str, ...] = ("armhf", "arm64")
    """Of the programs; the last one is the kernel's."""
    qemu: tuple[str, ...] = (
        *("qemu-system-aarch64", "-M", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"),
    )


KERNELS = {
    "arm64": Kernel("bookworm", "linux-image-arm64"),
    "arm64-16k": Kernel("trixie", "linux-image-arm64-16k"),
    "armmp": Kernel(
        *("bookworm", "linux-image-armmp", ("armhf",)),
        ("qemu-system-arm", "-M", "virt,highmem=off", "-cpu", "cortex-a15"),
    ),
}
"""By the flavours of their packages."""

INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /root
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs dev /dev
for m in MODULES; do $b insmod /modules/$m.ko; done
options=trans=virtio,version=9p2000.L,msize=262144
$b mount -t 9p -o $options,cache=loose,ro root /root
$b mount -t proc proc /root/proc
$b mount -t sysfs sysfs /root/sys
$b mount -t devtmpfs dev /root/dev
$b mount -t tmpfs tmp /root/tmp
$b mount -t 9p -o $options,cache=none share /root/mnt
exec $b chroot /root /bin/bash /mnt/serve >/dev/console 2>&1
"""

# The line of scripts may not be connected yet when it is first read. What is written to the other
# one waits until somebody connects to it.
SERVE = """export PATH=/usr/bin:/bin:/mnt HOME=/tmp
(
  exec 4<>$(echo /dev/vport*p2)
  while echo >&4; do sh <&4 >&4 2>>/mnt/shell.err; done
) &
exec 3<>$(echo /dev/vport*p1)
until read -r script <&3; do :; done
while true; do
  bash /mnt/$script >/mnt/$script.out 2>&1 </dev/null
  echo $? >&3
  read -r script <&3 || exit
done
"""


@dataclass(frozen=True)
class Done:
    """How a script ended, and what it said."""

    status: int
    out: str


class Guest:
    """A machine that is up."""

    def __init__(self, process: subprocess.Popen[bytes], share: Path) -> None:
        self._process = process
        self._scripts = 0
        self.share = share
        """Its folder /mnt."""
        self.place = f"exec:{sys.executable} {SHELL} {_socket_of(share)}"
        """For `--on`. Only one may connect at a time."""

    def run(self, script: str) -> Done:
        """Run a script to its end."""
        self._scripts += 1
        path = self.share / f"script{self._scripts}"
        path.write_text(script)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(f"{path.name}\n".encode())
            self._process.stdin.flush()
            status = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        console = self.share.with_suffix(".console").read_text(errors="replace")
        assert status, f"the guest is gone: {console[-2000:]}"
        out = path.with_name(f"{path.name}.out").read_text(errors="replace")
        return Done(int(status), out)


def cache_folder() -> Path:
    """Return where the guest's system is kept."""
    default = Path(__file__).resolve().parents[2] / ".cache" / "emulator"
    return Path(os.environ.get("REACHSCAN_EMULATOR_CACHE", default))


@dataclass(frozen=True)
class System:
    """What a guest starts with."""

    root: Path
    kernel: Path
    """A folder: the kernel, and the first programs that it starts."""
    qemu: tuple[str, ...]


def fetch(flavour: str) -> System:
    """Return the guest's system, fetched and unpacked unless it was before.

    Raises:
        UnavailableError: it is not here and cannot be fetched, or there is no emulator.
    """
    kernel = KERNELS[flavour]
    if shutil.which(kernel.qemu[0]) is None:
        raise UnavailableError(
            f"{kernel.qemu[0]} is not installed (Debian package qemu-system-arm)"
        )
    main = kernel.architectures[-1]
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    programs, started = folder / f"programs-{main}", folder / f"kernel-{flavour}"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = {**dict.fromkeys(kernel.architectures, SHORT_PACKAGES), main: PACKAGES}
        wanted = (SUITE, *(package for each in packages.values() for package in each))
        _make_once(programs, wanted, lambda to: _make_programs(to, packages))
        busybox = programs / "root" / "bin" / "busybox"
        wanted = (kernel.suite, kernel.package, *MODULES, INIT)
        _make_once(started, wanted, lambda to: _make_kernel(to, kernel, busybox))
    return System(programs / "root", started, kernel.qemu)


@contextmanager
def machine(system: System, share: Path) -> Iterator[Guest]:
    """Boot a guest that shares a folder; it is switched off at the end."""
    (share / "serve").write_text(SERVE)
    console = share.with_suffix(".console")
    command = [
        *(*system.qemu, "-smp", "2", "-m", "1024"),
        *("-accel", "tcg,thread=multi,tb-size=256", "-nodefaults", "-nographic", "-no-reboot"),
        *("-kernel", str(system.kernel / "vmlinuz"), "-initrd", str(system.kernel / "initrd")),
        *("-append", "console=ttyAMA0 quiet panic=-1 rdinit=/init"),
        *("-serial", f"file:{console}"),
        *_shared("root", system.root, "readonly=on"),
        *_shared("share", share, "readonly=off"),
        *("-chardev", "stdio,id=scripts,signal=off", "-device", "virtio-serial-pci"),
        *("-device", "virtserialport,chardev=scripts"),
        *("-chardev", f"socket,id=shell,path={_socket_of(share)},server=on,wait=off"),
        *("-device", "virtserialport,chardev=shell"),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Guest(process, share)
        finally:
            process.kill()


def _socket_of(share: Path) -> Path:
    return share.with_suffix(".shell")


def _shared(name: str, folder: Path, access: str) -> list[str]:
    options = f"local,id={name},path={folder},security_model=none,multidevs=remap,{access}"
    return ["-fsdev", options, "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]


def _make_once(folder: Path, wanted: tuple[str, ...], make: Callable[[Path], None]) -> None:
    complete = folder / "complete"
    if complete.exists() and complete.read_text() == " ".join(wanted):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    make(folder)
    shutil.rmtree(folder / "apt")
    complete.write_text(" ".join(wanted))


def _make_programs(folder: Path, packages_of: dict[str, tuple[str, ...]]) -> None:
    root = folder / "root"
    # Libraries of each have folders of their own; of other files, the last one counts.
    for architecture, packages in packages_of.items():
        options = _apt(folder, SUITE, architecture)
        run(["apt-get", *options, "--yes", "--download-only", "install", *packages], folder)
        for package in sorted((folder / "apt" / "cache" / "archives").glob("*.deb")):
            run(["dpkg-deb", "-x", str(package), str(root)], folder)
    keep_links_inside(root)
    (root / "bin" / "sh").symlink_to("bash")
    (root / "etc" / "passwd").write_text("root:x:0:0::/tmp:/bin/bash\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (root / "mnt").mkdir(exist_ok=True)


def _make_kernel(folder: Path, kernel: Kernel, busybox: Path) -> None:
    options = _apt(folder, kernel.suite, kernel.architectures[-1])
    # The package that is asked for only names the one that has the kernel.
    depends = run(["apt-cache", *options, "depends", "--important", kernel.package], folder)
    [newest] = re.findall(r"Depends: (linux-image-\S+)", depends)
    run(["apt-get", *options, "download", newest], folder)
    [archive] = folder.glob("*.deb")
    modules = _unpack_kernel(archive, folder)
    archive.unlink()
    (folder / "initrd").write_bytes(_initial_root(busybox, modules))


def _apt(folder: Path, suite: str, architecture: str) -> list[str]:
    """Return options for apt, which knows the packages of a suite."""
    shutil.rmtree(folder / "apt", ignore_errors=True)
    options = private_apt(suite, folder / "apt", architecture)
    run(["apt-get", *options, "update"], folder)
    return options


def _unpack_kernel(package: Path, folder: Path) -> dict[str, bytes]:
    """Return the modules that may be needed; the image is written to the folder."""
    modules = {}
    content = subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, cwd=folder
    )
    with content, tarfile.open(fileobj=content.stdout, mode="r|") as files:
        for file in files:
            opened = files.extractfile(file) if file.isfile() else None
            if opened is None:
                continue
            name, dot, ending = Path(file.name).name.partition(".")
            if file.name.startswith("./boot/vmlinuz-"):
                (folder / "vmlinuz").write_bytes(opened.read())
            elif dot + ending in UNPACKED and MODULE_FOLDERS.search(file.name):
                modules[name.replace("-", "_")] = UNPACKED[dot + ending](opened.read())
    return modules


def _in_order(modules: dict[str, bytes]) -> list[str]:
    """Return the needed modules, each behind those that it depends on."""
    order: list[str] = []

    def add(name: str) -> None:
        if name not in modules or name in order:
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", modules[name])
        for other in depends.group(1).decode().split(",") if depends else ():
            add(other.replace("-", "_"))
        order.append(name)

    for name in MODULES:
        add(name)
    return order


def _initial_root(busybox: Path, modules: dict[str, bytes]) -> bytes:
    """Return an archive in the format that kernels unpack (cpio, "newc")."""
    archive = io.BytesIO()
    count = 0

    def add(name: str, mode: int, content: bytes = b"") -> None:
        nonlocal count
        count += 1
        path = name.encode() + b"\0"
        numbers = (count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
        archive.write(b"070701" + b"".join(b"%08X" % number for number in numbers))
        for part in (path, content):
            archive.write(part)
            archive.write(bytes(-archive.tell() % 4))

    order = _in_order(modules)
    for folder in ("bin", "dev", "modules"):
        add(folder, 0o40755)
    add("bin/busybox", 0o100755, busybox.read_bytes())
    for name in order:
        add(f"modules/{name}.ko", 0o100644, modules[name])
    add("init", 0o100755, INIT.replace("MODULES", " ".join(order)).encode())
    add("TRAILER!!!", 0)
    return gzip.compress(archive.getvalue())


def main() -> int:
    """Fetch the guest's systems."""
    try:
        for flavour in KERNELS:
            print(fetch(flavour).kernel)
    except UnavailableError as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
