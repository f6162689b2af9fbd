"""Fetches C libraries of other Debian and Ubuntu suites, so that tests can run programs on them.

    python tests/support/glibc_suites.py [SUITE ...]

Packages come from the mirror that this machine's own apt sources name, through a private apt
configuration that leaves the machine's alone; apt checks the archive's signature and each
package's checksum. Packages are kept beside their SHA-256 sums and checked again on every use.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIBRARY_FOLDERS = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
LOADER = "ld-linux-x86-64.so.2"
JEMALLOC = ("libjemalloc2", "libstdc++6", "libgcc-s1")  # the allocator, and what it needs
RUNTIME = ("libc6", *JEMALLOC)
TCMALLOC = "libtcmalloc-minimal4"
TCMALLOC_OF_64_BIT_TIME = f"{TCMALLOC}t64"  # its name since trixie
MIMALLOC = "libmimalloc3"
# The interpreter without most of its library, and what it needs.
PYTHON = ("python{0}-minimal", "libpython{0}-minimal", "libexpat1", "zlib1g")
PYTHONS = {"trixie": "3.13", "sid": "3.14"}


def _python(suite: str) -> tuple[str, ...]:
    return tuple(package.format(PYTHONS[suite]) for package in PYTHON)


# The oldest suite also serves to build: a program linked against it runs on all of them.
BUILD_SUITE = "bullseye"
SUITES: dict[str, tuple[str, ...]] = {
    "bullseye": (*RUNTIME, TCMALLOC, "libc6-dev", "linux-libc-dev"),
    "trixie": (*RUNTIME, TCMALLOC_OF_64_BIT_TIME, MIMALLOC, *_python("trixie")),
    "sid": (*RUNTIME, TCMALLOC_OF_64_BIT_TIME, MIMALLOC, *_python("sid")),
}
# Of Ubuntu, whose archive keeps what is older than all that Debian's mirrors have.
OLDER_SUITES: dict[str, tuple[str, ...]] = {"xenial": ("libc6",), "bionic": ("libc6",)}
UBUNTU = "http://archive.ubuntu.com/ubuntu"
UBUNTU_KEYRING = Path("usr/share/keyrings/ubuntu-archive-keyring.gpg")  # of Debian's package
UBUNTU_KEYRING_SUITE = "trixie"
PATIENCE = 180  # seconds for one call of apt


class UnavailableError(Exception):
    """This machine cannot get at the suite; the text says why."""


@dataclass(frozen=True)
class Glibc:
    """One unpacked C library: its files, and the folder with its loader in it."""

    suite: str
    root: Path
    libraries: Path

    @property
    def jemalloc(self) -> str:
        """What to preload so that a program on this C library has the suite's jemalloc."""
        return self._preloaded("libjemalloc.so.2")

    @property
    def tcmalloc(self) -> str:
        """The same for the tcmalloc of gperftools."""
        return self._preloaded("libtcmalloc_minimal.so.4")

    @property
    def mimalloc(self) -> str:
        """The same for mimalloc 3, where the suite has it."""
        return self._preloaded("libmimalloc.so.3")

    @property
    def python(self) -> list[str]:
        """What to put before a script so that the suite's interpreter runs it."""
        home = self.root / "usr"
        program = home / "bin" / f"python{PYTHONS[self.suite]}"
        folders = ":".join(str(self.root / name) for name in LIBRARY_FOLDERS)
        loader = [str(self.libraries / LOADER), "--library-path", folders]
        return ["env", f"PYTHONHOME={home}", *loader, str(program)]

    def _preloaded(self, allocator: str) -> str:
        folders = [self.root / name for name in LIBRARY_FOLDERS]
        names = ("libgcc_s.so.1", "libstdc++.so.6", allocator)
        found = [next(f / name for f in folders if (f / name).exists()) for name in names]
        return ":".join(map(str, found))

    @property
    def command(self) -> list[str]:
        """What to put before a program so that it runs on this C library."""
        return [str(self.libraries / LOADER), "--library-path", str(self.libraries)]


def cache_folder() -> Path:
    """Return where packages are kept, one folder per suite."""
    default = Path(__file__).resolve().parents[2] / ".cache" / "glibc"
    return Path(os.environ.get("REACHSCAN_GLIBC_CACHE", default))


def fetch(suite: str) -> Glibc:
    """Return the C library of a suite, fetched and unpacked unless it was before.

    Raises:
        UnavailableError: it is not here and cannot be fetched.
    """
    folder = cache_folder() / suite
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _intact(folder, _packages(suite)):
                _download(suite, folder)
            _unpack(folder)
    except OSError as error:
        raise UnavailableError(f"glibc of {suite}: {error}") from error
    return Glibc(suite, folder / "root", _libraries(folder / "root"))


def _packages(suite: str) -> tuple[str, ...]:
    return OLDER_SUITES[suite] if suite in OLDER_SUITES else SUITES[suite]


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _intact(folder: Path, packages: tuple[str, ...]) -> bool:
    try:
        sums: dict[str, str] = json.loads((folder / "sha256.json").read_text())
        names = {name.split("_")[0] for name in sums}
        return names == set(packages) and all(
            _sum(folder / "debs" / name) == value for name, value in sums.items()
        )
    except (OSError, ValueError):
        return False


def _download(suite: str, folder: Path) -> None:
    for stale in ("debs", "root", "apt"):
        shutil.rmtree(folder / stale, ignore_errors=True)
    (folder / "sha256.json").unlink(missing_ok=True)
    debs = folder / "debs"
    debs.mkdir()
    if suite in OLDER_SUITES:
        options = private_apt(suite, folder / "apt", mirror=UBUNTU, keyring=_ubuntu_keyring(folder))
    else:
        options = private_apt(suite, folder / "apt")
    _apt_download(options, _packages(suite), debs)
    sums = {path.name: _sum(path) for path in sorted(debs.glob("*.deb"))}
    (folder / "sha256.json").write_text(json.dumps(sums, indent=1) + "\n")
    shutil.rmtree(folder / "apt")  # the package lists, tens of megabytes


def _apt_download(options: list[str], packages: tuple[str, ...], debs: Path) -> None:
    run(["apt-get", *options, "update"], debs)
    run(["apt-get", *options, "download", *packages], debs)


def _ubuntu_keyring(folder: Path) -> Path:
    """Return the keys of Ubuntu's archive, from a package that Debian has signed."""
    scratch = folder / "apt" / "keyring"
    scratch.mkdir(parents=True)
    options = private_apt(UBUNTU_KEYRING_SUITE, scratch / "apt")
    _apt_download(options, ("ubuntu-keyring",), scratch)
    [package] = scratch.glob("*.deb")
    run(["dpkg-deb", "-x", str(package), str(scratch)], scratch)
    return scratch / UBUNTU_KEYRING


def private_apt(
    suite: str,
    folder: Path,
    architecture: str = "amd64",
    mirror: str | None = None,
    keyring: Path = KEYRING,
) -> list[str]:
    """Return options of apt that have it work in a folder of its own, for any processor."""
    for part in ("state/lists/partial", "cache/archives/partial", "etc"):
        (folder / part).mkdir(parents=True)
    (folder / "state" / "status").touch()
    address = mirror or archive_address()
    source = f"deb [arch={architecture} signed-by={keyring}] {address} {suite} main\n"
    (folder / "etc" / "sources.list").write_text(source)
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state" / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "etc" / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "APT::Architecture": architecture,
        "APT::Architectures::": architecture,
        "APT::Install-Recommends": "false",
        "APT::Get::List-Cleanup": "false",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Acquire::http::Timeout": "20",
    }
    if suite == "sid":  # its Release file is allowed to be older than a few days
        settings["Acquire::Check-Valid-Until"] = "false"
    if os.geteuid() == 0:  # apt's own user may not enter this folder
        settings["APT::Sandbox::User"] = "root"
    return [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]


def archive_address() -> str:
    """The address of the Debian archive, as this machine's own apt sources give it."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise UnavailableError(
            "other C libraries need apt-get and dpkg-deb, this is no Debian machine"
        )
    if not KEYRING.exists():
        raise UnavailableError(f"{KEYRING} is missing: install debian-archive-keyring")
    listing = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)", "Created-By: Packages"],
        Path.cwd(),
    )
    for line in listing.splitlines():
        address, _, component = line.partition(" ")
        if component == "main" and "security" not in address:
            return address
    raise UnavailableError("this machine's apt sources name no Debian mirror")


def run(command: list[str], folder: Path) -> str:
    """Return what a command prints.

    Raises:
        UnavailableError: it failed.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{command[0]} {command[-1]} took over {PATIENCE} s") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise UnavailableError(f"{command[0]} failed: {lines[-1]}")
    return done.stdout


def _unpack(folder: Path) -> None:
    """Unpacks what _intact or _download vouched for, once."""
    done = folder / "root" / ".unpacked"
    sums = (folder / "sha256.json").read_text()
    if done.exists() and done.read_text() == sums:
        return
    shutil.rmtree(folder / "root", ignore_errors=True)
    (folder / "root").mkdir()
    for deb in sorted((folder / "debs").glob("*.deb")):
        run(["dpkg-deb", "-x", str(deb), str(folder / "root")], folder)
    keep_links_inside(folder / "root")
    done.write_text(sums)


def keep_links_inside(root: Path) -> None:
    """Absolute links in the packages would lead out to this machine's own libraries."""
    for path in root.rglob("*"):
        if path.is_symlink() and path.readlink().is_absolute():
            target = root / path.readlink().relative_to("/")
            path.unlink()
            path.symlink_to(os.path.relpath(target, path.parent))


def _libraries(root: Path) -> Path:
    for name in LIBRARY_FOLDERS:
        if (root / name / LOADER).exists():
            return root / name
    raise UnavailableError(f"{root} holds no {LOADER}")


def main() -> int:
    """Fetch the suites named on the command line, or all."""
    missing = 0
    known = (*SUITES, *OLDER_SUITES)
    for suite in sys.argv[1:] or known:
        if suite not in known:
            print(f"unknown suite {suite}; known: {', '.join(known)}", file=sys.stderr)
            return 2
        try:
            print(suite, fetch(suite).libraries)
        except UnavailableError as reason:
            missing += 1
            print(f"{suite} skipped: {reason}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
