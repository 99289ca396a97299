"""Packed files (.gz, .bz2, .xz, .zip) as streams of bytes of bounded length."""

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from gpflow_deep_base.storage.limits import Budget
from gpflow_deep_runs.data.files.libraries import pa

__all__ = [
    "COMPRESSIONS",
    "PIECE",
    "UNPACK_ERRORS",
    "Pieces",
    "budget_of",
    "check_file",
    "compression_of",
    "open_unpacked",
]

COMPRESSIONS = ("gz", "bz2", "xz", "zst", "zip")
"""How files may be packed, by the ends of their names."""

UNPACK_ERRORS = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
"""What a packed file raises while it is read, if it is damaged."""

PIECE = 2**20
"""Bytes that are read at once."""

_MAX_RATIO = 20
_SEPARATORS = (b"\n", b",", b";", b"\t", b"|")
_PER_CELL = 4
"""Bytes that a value of a text takes besides its characters."""

_MAX_BYTES = 10**8


def check_file(path: Path, name: str = "--data") -> None:
    """Refuse what cannot be read twice.

    :raises ValueError: if there is no file, or a folder, a pipe or a device.
    """
    if path.is_dir():
        raise ValueError(f"{name} must be a file, got the folder {path}; give a file in it.")
    if path.exists() and not path.is_file():
        raise ValueError(f"{name} must be a file, got the pipe or device {path}; write it to a file first.")
    if not path.is_file():
        raise ValueError(f"{name} must be a file, but there is none at {path}; check the path.")


def compression_of(path: str | os.PathLike[str]) -> str:
    """How a file is packed, by its name: "gz", "bz2", "xz", "zip" or ""."""
    suffix = Path(path).suffix.lower()[1:]
    return suffix if suffix in COMPRESSIONS else ""


def open_unpacked(path: str | os.PathLike[str], max_bytes: int | None = None) -> IO[bytes]:
    """A file to read as bytes, unpacked if its name says that it is packed.

    :param max_bytes: that it may take, values of a text counted; None: 100 MB and 20 times its size.
    :raises ValueError: if a .zip file does not hold exactly one file, and while reading, if a file unpacks to more.
    :raises OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError: if it cannot be read, or is
        damaged or encrypted.
    """
    path = Path(path)
    packed = compression_of(path)
    if not packed:
        return open(path, "rb")
    # An archive must hold a single file, beside what macOS adds.
    if packed == "zip":
        archive = zipfile.ZipFile(path)
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX")]
        if len(names) != 1:
            raise ValueError(f"{path} must hold one file, got {len(names)}; unpack it and give one of them.")
        stream: Any = archive.open(names[0])
    else:
        # The others are streams, whose length is bounded while they are read.
        openers: dict[str, Any] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
        openers["zst"] = lambda path, mode: pa.CompressedInputStream(pa.OSFile(str(path), mode), "zstd")
        stream = openers[packed](path, "rb")
    return cast(IO[bytes], io.BufferedReader(Pieces(_bounded(stream, max_bytes or _most_unpacked(path), path)), PIECE))


def budget_of(path: Path, max_bytes: int | None = None) -> Budget:
    """Memory for what is made of a file: as much as a packed one may unpack to."""
    return Budget(max_bytes or _most_unpacked(path))


def _most_unpacked(path: Path) -> int:
    return _MAX_BYTES + _MAX_RATIO * path.stat().st_size


class Pieces(io.RawIOBase):
    """Pieces of bytes as a raw stream to read, for `io.BufferedReader`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the next piece reaches; 0 at the end."""
        # An empty piece is not the end.
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _bounded(stream: IO[bytes], limit: int, path: Path) -> Iterator[bytes]:
    """The pieces of an unpacked stream, which is closed at its end."""
    size = 0
    with stream:
        # Values take memory besides their characters, so delimiters count, too.
        while piece := stream.read(PIECE):
            size += len(piece) + _PER_CELL * sum(map(piece.count, _SEPARATORS))
            if size > limit:
                raise ValueError(
                    f"{path} takes more than {limit:,} bytes unpacked; give --max_bytes=N, or unpack it yourself, if "
                    "you trust its source."
                )
            yield piece
