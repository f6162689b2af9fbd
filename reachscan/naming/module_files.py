"""Finds the files of the modules that a process has mapped, and verifies them.

Files are looked up where the process sees them, and must have the build id that the process has
mapped. They may come from a container, so their contents are not trusted, either.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from elftools.elf.elffile import ELFFile

from reachscan.capture import target
from reachscan.capture.sysroot import FetchedFiles, Sysroot
from reachscan.naming import confined, debug_files, elf_files
from reachscan.naming.memory_map import AddressSpace
from reachscan.naming.owners import plain_path
from reachscan.naming.untrusted_files import Root, UnusableFileError, open_below, open_mapped
from reachscan.recording import model

_HERE = Path("/")
_NO_OWNER = -1
_MAX_LINKS = 4
"""Number of a file's mappings that are tried in order to open it."""


class ModuleFiles:
    """The files of the modules of one recording.

    Attributes:
        space: the mappings of the target.
        roots: root folders that may hold its files, best first.
    """

    def __init__(self, recording: model.Recording, space: AddressSpace, *, root: Sysroot) -> None:
        """Prepare to look for files.

        Args:
            recording: lists the files that were mapped.
            space: the memory map of the process.
            root: where its files are.
        """
        self.space = space
        self._fetched: FetchedFiles | None = None
        self._not_fetched: dict[str, str] = {}
        self.roots: tuple[Root, ...]
        if root is None:
            self.roots = _roots(recording.target.pid)
        elif isinstance(root, (str, Path)):
            self.roots = (_untrusted(root),)
        else:
            self._fetched = root
            self.roots = (_untrusted(root.folder), _untrusted(_HERE))
        self._pid = recording.target.pid
        self._live = root is None
        # The first of several with the same path counts.
        self._build_ids = {plain_path(m.path): m.build_id for m in reversed(recording.modules)}
        self._mapped: dict[str, list[model.Mapping]] = defaultdict(list)
        for mapping in recording.mappings:
            self._mapped[plain_path(mapping.path)].append(mapping)

    def provide(self, paths: Iterable[str]) -> None:
        """Fetch the files of some modules, if they are missing here and can be fetched.

        Must be called in this process, before they are opened.
        """
        if self._fetched is None:
            return

        def is_here(path: str) -> bool:
            with self.opened(path):
                return True

        wanted = [path for path in paths if path.startswith("/")]
        missing = {
            path: self._build_ids.get(path, b"")
            for path, answer in confined.each(wanted, is_here)
            if answer is not True
        }
        self._not_fetched = self._fetched.add(missing)

    def build_ids(self, addresses: model.Addresses) -> set[bytes]:
        """Return the build ids of the modules that contain addresses."""
        modules = {
            int(self.space.module_of[at]) for at in self.space.mapping_at(addresses) if at >= 0
        }
        paths = (self.space.modules[module] for module in modules if module >= 0)
        return {self._build_ids.get(path, b"") for path in paths} - {b""}

    @contextmanager
    def opened(self, path: str) -> Iterator[ELFFile]:
        """Open the file of a module, if it is the file that the process has mapped.

        Args:
            path: of the module, as the process sees it.

        Raises:
            UnusableFileError: it does not exist, is a different file, or is damaged.
        """
        with ExitStack() as stack:
            yield self._open_first_trusted(path, stack)

    @contextmanager
    def opened_with_debug_file(self, path: str) -> Iterator[tuple[ELFFile, ELFFile | None]]:
        """Open the file of a module, and its separate debug file if there is one.

        Raises:
            UnusableFileError: as in `opened`.
        """
        with self.opened(path) as elf, debug_files.opened(elf, path, self.roots) as debug:
            yield elf, debug

    def _open_first_trusted(self, path: str, stack: ExitStack) -> ELFFile:
        """Return the first file that matches the mapped one; `stack` will close it."""
        reasons = []
        for open_file in self._candidates(path):
            try:
                with ExitStack() as attempt:
                    elf: ELFFile = attempt.enter_context(elf_files.opened(open_file))
                    self._compare(elf, path)
                    stack.enter_context(attempt.pop_all())
                    return elf
            except UnusableFileError as error:
                reasons.append(str(error))
        reason = reasons[-1] if reasons else "it has no file"
        raise UnusableFileError(self._not_fetched.get(path, reason))

    def _candidates(self, path: str) -> Iterator[Callable[[], BinaryIO]]:
        """Yield ways to open the file of a module, best first."""
        if not path.startswith("/"):
            return
        if self._live:
            # With the privilege for it, this way does not depend on paths.
            for m in self._mapped[path][:_MAX_LINKS]:
                yield partial(open_mapped, self._pid, m.start, m.end)
        # A local file with the right build id saves fetching it.
        for root in self.roots if self._fetched else self.roots[:1]:
            build_id = self._build_ids.get(path, b"")
            for place in debug_files.by_build_id(build_id, debug_files.MODULE):
                yield partial(open_below, root, str(place))
            # Last, since errors name the last path tried.
            yield partial(open_below, root, path)

    def _compare(self, elf: ELFFile, path: str) -> None:
        """Refuse a file that differs from the mapped one."""
        build_id = self._build_ids.get(path, b"")
        if not build_id and not self._live:
            raise UnusableFileError("it has no build id to recognise its file by")
        if build_id:
            is_it = elf_files.build_id(elf) == build_id
        else:
            inode = os.fstat(elf.stream.fileno()).st_ino
            is_it = inode in {m.inode for m in self._mapped[path]}
        if not is_it:
            raise UnusableFileError("the file on disk is not the one that was mapped")


def _untrusted(folder: str | Path) -> Root:
    # A saved scan or core file may come from anyone: it must not use our privileges.
    return Root(Path(folder), os.geteuid() or _NO_OWNER)


def _roots(pid: int) -> tuple[Root, ...]:
    try:
        user = target.user(pid)
    except (OSError, KeyError):
        user = _NO_OWNER  # the process has exited; its root folder is gone
    return Root(Path(f"/proc/{pid}/root"), user), Root(_HERE, user)
