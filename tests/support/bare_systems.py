"""Makes Debian systems that have Python and no compiler, as folders to change the root to.

They are made by debootstrap from the mirror that this machine's own apt sources name, and kept.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from glibc_suites import KEYRING, UnavailableError, archive_address

PACKAGES: dict[str, tuple[str, ...]] = {
    "bullseye": ("python3", "python3-venv"),
    "bookworm": ("python3", "python3-venv", "pipx"),
    "trixie": ("python3", "python3-venv", "pipx"),
}
COMPILERS = ("cc", "gcc", "c++", "g++", "clang")
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
OF_THE_NETWORK = (Path("etc/resolv.conf"), Path("etc/hosts"), CERTIFICATES)
"""Files of this machine, without which pip there reaches nothing."""
PATIENCE = 900
SHARED = "/mnt"

# All that is mounted is gone with the namespace.
ENTER = """
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/mnt" || exit 1
root=$0; shift; exec chroot "$root" "$@"
"""


def cache_folder() -> Path:
    """Return where the systems are kept, one folder for each."""
    default = Path(__file__).resolve().parents[2] / ".cache" / "systems"
    return Path(os.environ.get("REACHSCAN_SYSTEMS_CACHE", default))


def system(suite: str) -> Path:
    """Return the root of a system, made unless it was before. Nobody may change what is in it.

    Raises:
        UnavailableError: it is not here and cannot be made; the text says why.
    """
    packages = PACKAGES[suite]
    return kept(suite, " ".join(packages), lambda root: debootstrap(suite, packages, root))


def kept(name: str, recipe: str, make: Callable[[Path], None]) -> Path:
    """Return the root of a system that is kept, made anew unless it was made by this recipe."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    root, complete = folder / name, folder / f"{name}.complete"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != recipe:
            shutil.rmtree(root, ignore_errors=True)
            make(root)
            complete.write_text(recipe)
    for path in OF_THE_NETWORK:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path("/") / path, root / path)
    return root


def forget(name: str) -> None:
    """Remove a system that is no longer needed."""
    (cache_folder() / f"{name}.complete").unlink()
    shutil.rmtree(cache_folder() / name)


def debootstrap(suite: str, wanted: Sequence[str], root: Path) -> None:
    """Make a system of a suite of Debian's, with these packages."""
    if shutil.which("debootstrap") is None:
        raise UnavailableError("debootstrap is not installed (Debian package debootstrap)")
    packages = f"--include={','.join(wanted)}"
    command = ["debootstrap", "--variant=minbase", f"--keyring={KEYRING}", packages, suite]
    done = subprocess.run(
        [*command, str(root), archive_address()],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise UnavailableError(f"debootstrap of {suite} failed: {done.stdout.strip()[-300:]}")


def entering(root: Path, shared: Path, *command: str) -> list[str]:
    """Return a command that runs another one in a system, which sees a folder of ours as /mnt."""
    return ["unshare", "--mount", "sh", "-c", ENTER, str(root), str(shared), *command]


def run_in(root: Path, shared: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in a system, at home in the folder that is shared."""
    return subprocess.run(
        entering(root, shared, "/bin/sh", "-euc", script),
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def _environment() -> Mapping[str, str]:
    """Return what a login there sets, and how the network is reached from here."""
    network = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "UV_DEFAULT_INDEX")
    passed = {name: value for name, value in os.environ.items() if name in network}
    own = {
        "HOME": SHARED,
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "SSL_CERT_FILE": f"/{CERTIFICATES}",
        "PIP_CERT": f"/{CERTIFICATES}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    return {**passed, **own}
