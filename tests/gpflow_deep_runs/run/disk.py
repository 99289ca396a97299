"""What a power failure leaves of a folder."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["Disk", "State"]


class State(NamedTuple):
    """What is on disk at one moment.

    :param contents: number of a file -> what of it is on disk; nothing of a file that is not here.
    :param names: number of a folder -> name in it -> number of that file or folder.
    :param folders: which numbers are folders.
    :param root: number of the folder that is watched.
    """

    contents: dict[int, bytes]
    names: dict[int, dict[str, int]]
    folders: frozenset[int]
    root: int

    def write(self, folder: Path) -> None:
        """Make the files as they are after the failure."""
        self._write(self.root, folder)

    def _write(self, number: int, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name, entry in self.names.get(number, {}).items():
            if entry in self.folders:
                self._write(entry, folder / name)
            else:
                (folder / name).write_bytes(self.contents.get(entry, b""))


class Disk:
    """Watches `os.fsync` and `os.replace` for what they promise, and no more.

    The content of a file is on disk up to its last fsync, and a name (of a new file, of a folder, after a renaming)
    since the last fsync of the folder that it is in. A file whose name is on disk and whose content is not is empty.
    All other things may be on disk, too: `states` holds for each moment what is there if no other name is, and what is
    there if all names are, as an order of writing that no fsync asks for can have it.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.states: list[tuple[State, Any]] = []
        self.note: Any = None
        """Stored with each state, such as the step that must not be lost."""
        self._open: dict[int, int] = {}  # files stay open, so that the number of one that is deleted is not used again
        self._folders: set[int] = set()
        self._contents: dict[int, bytes] = {}
        self._fsync, self._replace = os.fsync, os.replace
        self._names = self._current()
        patch.setattr(os, "fsync", self._synced)
        patch.setattr(os, "replace", self._renamed)

    def close(self) -> None:
        """Forget what is watched."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()

    def _synced(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_relative_to(self.folder):
            if path.is_dir():
                self._names[self._number(path)] = self._entries(path)
            else:
                self._contents[self._number(path)] = path.read_bytes()
            self.record()

    def _renamed(self, source: Any, target: Any) -> None:
        self._replace(source, target)
        if Path(target).is_relative_to(self.folder):
            self.record()

    def record(self) -> None:
        """Add to `states` what is on disk now."""
        root = self._number(self.folder)
        for names in (dict(self._names), self._current()):
            self.states.append((State(dict(self._contents), names, frozenset(self._folders), root), self.note))

    def _current(self) -> dict[int, dict[str, int]]:
        folders = [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]
        return {self._number(folder): self._entries(folder) for folder in folders}

    def _entries(self, folder: Path) -> dict[str, int]:
        return {path.name: self._number(path) for path in folder.iterdir()}

    def _number(self, path: Path) -> int:
        number = path.stat().st_ino
        if number not in self._open:
            self._open[number] = os.open(path, os.O_RDONLY)
            self._folders |= {number} if path.is_dir() else set()
        return number
