"""Files that are whole or absent."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["atomic_path", "is_new_folder"]


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` to write to; what is there at the end of the `with` statement becomes `path`.

    After an error, or if the computer stops, `path` is as it was before.
    """
    final = Path(path)
    temporary = final.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{final.name}")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, final)
        _sync(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def is_new_folder(path: str | os.PathLike[str]) -> bool:
    """Whether there is nothing at `path`, or an empty folder."""
    folder = Path(path)
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
