"""The lock of a folder: one process writes into it. No TensorFlow here, so that a folder in use is refused at once.

The folder itself is locked, not a file in it that can be removed: by whatever path, symbolic link or new name a second
process comes, it meets the same lock. The file `.lock` is a note that says who has it.
"""

import errno
import fcntl
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpflow_deep_base.files import leftovers, make_folder
from gpflow_deep_base.text import has_control_characters

__all__ = ["LOCK", "Held", "LostFolder", "lock", "refuse_if_held", "remove_leftovers"]

LOCK = ".lock"
_UNFINISHED_CHECKPOINT = re.compile(r"\.tmp-([0-9a-f]{8}(-replaced)?|step-\d+)")
_NO_LOCK_OF_FOLDERS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class LostFolder(OSError):
    """A folder that is held was renamed, removed or replaced: its path does not lead to it any more."""


class Held:
    """A folder that this process holds.

    :ivar folder: its path, as it was given.
    """

    def __init__(self, folder: Path, flag: str = "run_dir") -> None:
        self.folder = folder
        self._flag = flag
        self._mine = os.stat(folder)

    def check(self) -> None:
        """Compare what is at the path with the folder that was opened; before each write, as it takes microseconds.

        :raises LostFolder: if they differ.
        """
        try:
            # The folder's identity, not its name: another one may have taken that.
            is_mine = os.path.samestat(self._mine, os.stat(self.folder))
        except (FileNotFoundError, NotADirectoryError):
            is_mine = False
        if not is_mine:
            raise LostFolder(
                f"--{self._flag}={self.folder} was renamed, removed or replaced by others; nothing more is written. "
                f"Move it back, then continue with --resume, or give a new --{self._flag}."
            )


@contextmanager
def lock(path: str | os.PathLike[str], *, flag: str = "run_dir") -> Iterator[Held]:
    """Hold the folder of a run, so that no second process writes into it; the system frees it when a process ends.

    The file `.lock` stays; it says who held the folder last.

    :param flag: what the folder was given as, for the message.
    :raises ValueError: if another process holds it, naming its host and number; and for a path that TensorFlow takes
        for a pattern, or that cannot be written in one line.
    """
    folder = Path(path).expanduser()
    _refuse_patterns(folder, flag)
    make_folder(folder)
    held = Held(folder, flag)
    # The lock is the system's, and lasts as long as the process.
    descriptor = _locked(folder, flag)
    if descriptor is None:  # now there is a note that can be locked
        (folder / LOCK).touch()
        descriptor = _locked(folder, flag)
    try:
        held.check()
        (folder / LOCK).write_text(f"process {os.getpid()} on {platform.node()}\n", encoding="utf-8")
        yield held
    finally:
        if descriptor is not None:
            os.close(descriptor)


def refuse_if_held(folder: Path, *, flag: str = "run_dir") -> None:
    """Look at the lock of a folder that may be there, and write nothing.

    :raises ValueError: as :func:`lock`.
    """
    _refuse_patterns(folder, flag)
    # A lock that is to be had is given back at once.
    if folder.is_dir() and (descriptor := _locked(folder, flag)) is not None:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process had not renamed yet, here and in the folders below. The folder has to be held."""
    for path, folders, _ in os.walk(folder):
        for file in leftovers(path):
            file.unlink(missing_ok=True)
        # Folders of checkpoints that were not renamed are not looked into.
        for name in [name for name in folders if _UNFINISHED_CHECKPOINT.fullmatch(name)]:
            folders.remove(name)
            shutil.rmtree(os.path.join(path, name), ignore_errors=True)


def _refuse_patterns(folder: Path, flag: str) -> None:
    """TensorFlow takes some characters for patterns when it reads a checkpoint back; others break lines of logs."""
    if has_control_characters(str(folder)) or any(character in "[]*?" for character in str(folder)):
        raise ValueError(f"--{flag} must have none of [ ] * ? and no control characters, got {str(folder)!r}.")


def _locked(folder: Path, flag: str) -> int | None:
    """A descriptor that has the lock of a folder until it is closed; None if there is no lock to be had yet."""
    try:
        return _flocked(folder, os.O_RDONLY | os.O_DIRECTORY)
    except BlockingIOError as error:
        raise _in_use(folder, flag) from error
    except OSError as error:
        if error.errno not in _NO_LOCK_OF_FOLDERS:
            raise
    # A network share that locks only files that are open for writing: there the note has to do.
    try:
        return _flocked(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return None
    except BlockingIOError as error:
        raise _in_use(folder, flag) from error


def _flocked(path: Path, mode: int) -> int:
    descriptor = os.open(path, mode)
    # Without waiting: who comes second is told so.
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _in_use(folder: Path, flag: str) -> ValueError:
    return ValueError(f"--{flag}={folder} is in use by {_owner(folder)}; wait for its end, or give another --{flag}.")


def _owner(folder: Path) -> str:
    try:
        return (folder / LOCK).read_text(encoding="utf-8", errors="replace").strip() or "another process"
    except OSError:
        return "another process"
