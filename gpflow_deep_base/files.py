"""Files that are whole or absent, and JSON.

One promise for all that this project writes: a path holds its former content or all of the new one, never a part, also
after a power failure. Missing folders are made. A symbolic link stays one: the file it leads to is replaced. Where a
system cannot synchronise a folder (network shares, Windows), the rest of the promise holds.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import math
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "FULL",
    "PathLike",
    "atomic_path",
    "entries",
    "files_below",
    "jsonable",
    "leftovers",
    "make_folder",
    "parse_json",
    "read_jsonl",
    "sha256",
    "sync_file",
    "sync_folder",
    "write_bytes",
    "write_json",
    "write_text",
]

PathLike: TypeAlias = str | os.PathLike[str]

FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""The system's numbers for what has no room: the disk, the largest file, and the quota, which Windows does not have."""

_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}
_LEFTOVER = re.compile(r"\.tmp-[0-9a-f]{8}-.+", re.DOTALL)
_LONGEST_NAME = 200  # bytes


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; rename it to `path` at the end, or remove it on an error.

    The temporary name keeps the suffix of `path`, which `np.savez` and Matplotlib look at. The permissions of a file
    that is replaced stay. The file is synchronised before it is renamed, and its folder after.

    :param path: where the file goes; through a symbolic link, to what the link leads to.
    :raises FileNotFoundError: if the body of the `with` wrote nothing.
    :raises PermissionError: if there is a file at `path` that may not be written.
    :raises OSError: if there is something else than a file at `path`, or it cannot be written.
    """
    final = _destination(path)
    make_folder(final.parent)
    # Beside the file, so that renaming is one act of the file system.
    end_of_name = os.fsencode(final.name)[-_LONGEST_NAME:].decode(errors="ignore")
    temporary = final.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{end_of_name}")
    try:
        yield temporary
        # The content is on disk before the name leads to it, and the name before this returns.
        if final.exists():
            shutil.copymode(final, temporary)
        _sync_content(temporary)
        os.replace(temporary, final)
        sync_folder(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _destination(path: PathLike) -> Path:
    """The file that will be replaced."""
    # What a link leads to is replaced, so that the link stays.
    final = Path(path).expanduser()
    final = Path(os.path.realpath(final)) if final.is_symlink() else final
    try:
        mode = final.stat().st_mode
    except FileNotFoundError:
        return final
    # A folder, a pipe or a device is not to be lost to a rename, nor a file that its owner protects.
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the name of a file in it", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is no regular file and cannot be replaced; give another name", str(path))
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            errno.EACCES, "is write-protected; allow writing (chmod u+w) or give another name", str(path)
        )
    return final


def leftovers(folder: PathLike) -> list[Path]:
    """Temporary files of :func:`atomic_path` in a folder, whose process was killed while it wrote.

    They may be removed by whoever knows that no other process writes into the folder.
    """
    return [entry for entry in entries(folder) if _LEFTOVER.fullmatch(entry.name) and entry.is_file()]


def entries(folder: PathLike, pattern: str = "*", *, below: bool = False) -> list[Path]:
    """What there is in a folder that another process may change meanwhile, sorted; what vanishes is left out.

    `Path.iterdir`, `glob` and `rglob` raise FileNotFoundError then.

    :param folder: without entries if it is absent, or no folder.
    :param pattern: of their names, as `fnmatch` has it.
    :param below: whether also to take what is in the folders below it. Links to folders are not followed.
    :raises OSError: if the folder is there and cannot be read.
    """

    def look_at(error: OSError) -> None:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR) and error.filename == os.fspath(folder):
            raise error

    # `os.walk` leaves out what vanishes while it reads.
    paths: list[Path] = []
    for path, folders, files in os.walk(folder, onerror=look_at):
        paths += [Path(path, name) for name in fnmatch.filter([*folders, *files], pattern)]
        if not below:
            break
    return sorted(paths)


def files_below(folder: PathLike) -> dict[Path, os.stat_result]:
    """The files in a folder and those below it, each with its size and times; what vanishes meanwhile is left out."""
    facts_by_path: dict[Path, os.stat_result] = {}
    for path in entries(folder, below=True):
        with contextlib.suppress(FileNotFoundError):
            facts_by_path[path] = path.stat()
    return {path: facts for path, facts in facts_by_path.items() if stat.S_ISREG(facts.st_mode)}


def make_folder(path: PathLike) -> None:
    """Create a folder, and those above it that are missing, under names that survive a power failure.

    :param path: of the folder; "~" is the user's home, as in all that this module writes.
    :raises OSError: if one of them cannot be created, or is a file.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return
    # From the top down, each name on disk before what is below it is made.
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_file(path: PathLike) -> None:
    """Make a file and its name survive a power failure: both are on disk when this returns."""
    _sync_content(Path(path))
    sync_folder(Path(path).parent)


def _sync_content(path: Path) -> None:
    with open(path, "r+b") as file:  # Windows synchronises only what is open for writing
        # A file system that cannot synchronise has done what it can.
        try:
            os.fsync(file.fileno())
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise


def sync_folder(path: PathLike) -> None:
    """Make the names in a folder survive a power failure: a rename is on disk when this returns.

    It does nothing where the system cannot open a folder (Windows) or synchronise it (some network shares).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except (PermissionError, IsADirectoryError):
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def sha256(path: PathLike) -> str:
    """Checksum of a file, as 64 hexadecimal digits; read a megabyte at a time."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_bytes(path: PathLike, content: bytes) -> None:
    """Write `content` to `path` in one piece; what was written is read back and compared before it takes the name.

    :raises OSError: if it cannot be written, or reads back as something else; `path` is as it was before.
    """
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)
        if temporary.read_bytes() != content:
            raise OSError(errno.EIO, "was written and reads back as something else; check the disk", str(path))


def write_text(path: PathLike, text: str) -> None:
    """Write `text` to `path` (UTF-8) in one piece; see :func:`write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: PathLike, obj: object) -> None:
    """Write `obj` to `path` as indented JSON in one piece, through :func:`jsonable`."""
    write_text(path, json.dumps(jsonable(obj), indent=2, allow_nan=False) + "\n")


def jsonable(obj: object) -> Any:
    """`obj` with NumPy, TensorFlow and path objects replaced by what strict JSON can hold; NaN and inf become None.

    :raises ValueError: if `obj` contains something else that JSON cannot hold, or bytes that are not UTF-8 text.
    """
    if obj is None or isinstance(obj, str | bool | int):
        return obj
    if isinstance(obj, bytes):  # a string tensor holds these
        return obj.decode()
    # JSON has no name for NaN and infinity.
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if isinstance(obj, Mapping):
        return {str(key): jsonable(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [jsonable(value) for value in obj]
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    # Arrays and their numbers, but no objects and no complex numbers.
    if isinstance(obj, np.ndarray | np.generic) and obj.dtype.kind in "biufSU":
        return jsonable(obj.tolist())
    if callable(numpy := getattr(obj, "numpy", None)) and not isinstance(obj, type):  # a tensor or a variable
        return jsonable(numpy())
    raise ValueError(f"JSON must get numbers, strings, lists and dictionaries, got {type(obj).__name__}: {obj!r}.")


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text from anybody: no NaN, no infinity, nothing nested too deeply, no name twice.

    :raises ValueError: saying what is wrong with it.
    """
    try:
        return json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_without_repetition
        )
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise ValueError("its JSON is not UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"its JSON is damaged: {error}") from error


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"its JSON has {constant}")


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"its JSON has {number}")
    return value


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("its JSON has an object with two members of one name")
    return members


def read_jsonl(path: PathLike) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, such as `scalars.jsonl`: "step" and the tags.

    :raises OSError: if it cannot be read.
    """
    with open(path, encoding="utf-8") as file:  # whose lines end at no other character than a newline
        return [json.loads(line) for line in file]
