"""What a path that nobody can trust may lead to, and what is not even opened for it."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from reachscan.naming import untrusted_files
from reachscan.naming.untrusted_files import LARGEST, Root, UnusableFileError, open_below

IN_OPEN = 0x20
NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return the root folder of somebody who is not root; a secret lies beside it."""
    (tmp_path / "root/folder").mkdir(parents=True)
    (tmp_path / "root/folder/file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    return Root(tmp_path / "root", NOBODY)


def read(root: Root, path: str) -> bytes:
    with open_below(root, path) as file:
        return file.read()


def test_a_file_is_opened_below_its_root(root: Root) -> None:
    assert read(root, "/folder/file") == b"inside"
    assert read(root, "folder/file") == b"inside"


@pytest.mark.parametrize("to", ["/secret", "../secret", "../../../../secret", "{outside}/secret"])
def test_links_do_not_lead_out_of_the_root(root: Root, to: str) -> None:
    (root.folder / "link").symlink_to(to.format(outside=root.folder.parent))
    with pytest.raises(UnusableFileError, match="No such file"):
        read(root, "link")
    (root.folder / "secret").write_bytes(b"its own")
    if to != "{outside}/secret":
        assert read(root, "link") == b"its own"


def test_links_of_the_kernel_are_not_followed(root: Root) -> None:
    with (
        (root.folder / "folder/file").open() as file,
        pytest.raises(UnusableFileError, match="symbolic links"),
    ):
        read(Root(Path("/"), NOBODY), f"/proc/self/fd/{file.fileno()}")


class Opens:
    """Notices every open() of what is in a folder; O_PATH opens nothing."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watch = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._libc.inotify_add_watch(self._watch, os.fsencode(folder), IN_OPEN) >= 0

    def happened(self) -> bool:
        try:
            return bool(os.read(self._watch, 1 << 16))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._watch)


@pytest.fixture
def opens(root: Root) -> Iterator[Opens]:
    watch = Opens(root.folder)
    yield watch
    watch.close()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "empty", "huge", "private"])
def test_what_must_not_be_read_is_not_opened(root: Root, opens: Opens, kind: str) -> None:
    path = root.folder / "it"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root can make a device")
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(5, 2))  # /dev/ptmx
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch(0o600 if kind == "private" else 0o644)
        os.truncate(path, {"empty": 0, "huge": LARGEST + 1, "private": 100}[kind])
    opens.happened()
    with pytest.raises(UnusableFileError):
        read(root, "it")
    assert not opens.happened()
    path.chmod(0o644)
    if kind == "private":
        assert len(read(root, "it")) == 100
        assert opens.happened()


def test_files_of_the_kernel_with_effects_are_not_opened() -> None:
    with pytest.raises(UnusableFileError):
        read(Root(Path("/"), 0), "/proc/kmsg")
    with pytest.raises(UnusableFileError):
        read(Root(Path("/"), 0), "/proc/kcore")


def test_the_owner_may_read_what_is_private(root: Root) -> None:
    (root.folder / "folder/file").chmod(0o600)
    with pytest.raises(UnusableFileError, match="private"):
        read(root, "folder/file")
    assert read(root._replace(user=os.geteuid()), "folder/file") == b"inside"


def test_kernels_without_openat2_open_what_has_no_links(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_files, "_OPENAT2", 9999)  # no kernel has so many calls
    (root.folder / "file").symlink_to("folder/file")
    (root.folder / "way").symlink_to("folder")
    assert read(root, "/folder/file") == b"inside"
    for path in ("file", "way/file", "folder/../folder/file", "../secret"):
        with pytest.raises(UnusableFileError):
            read(root, path)


def test_nothing_stays_open(root: Root) -> None:
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    read(root, "folder/file")
    for path in ("nothing", "folder", "folder/file/below"):
        with pytest.raises(UnusableFileError):
            read(root, path)
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
