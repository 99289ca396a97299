"""Small binary files: magic, version, checksum, and numbers of variable length.

    content = framed(b"\\x89BCZ", 5, payload)
    version, payload = unframed(content, magic=b"\\x89BCZ", versions=(5,))

A frame is the magic, the version (1 byte), the CRC-32 of the payload (4 bytes, little-endian) and the payload. Integers
are LEB128: 7 bits a byte, the lowest first, the highest bit set if more follow.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection

__all__ = ["Reader", "framed", "leb128", "unframed"]

_CHECKSUM = struct.Struct("<I")
_MAX_LEB128_BYTES = 10


def framed(magic: bytes, version: int, payload: bytes) -> bytes:
    """A whole file.

    :param magic: its first bytes.
    :param version: of the payload, 0 to 255.
    """
    return b"".join([magic, bytes([version]), _CHECKSUM.pack(zlib.crc32(payload)), payload])


def unframed(content: bytes, *, magic: bytes, versions: Collection[int]) -> tuple[int, bytes]:
    """Version and payload of :func:`framed`.

    :raises ValueError: if the content is truncated, damaged, of another kind or another version. It says what is wrong,
        and :func:`gpflow_deep_base.storage.limits.refuse_damaged` makes a message with the path of it.
    """
    if content[: len(magic)] != magic:
        raise ValueError(f"it starts with {content[: len(magic)]!r}, not with {magic!r}")
    # Behind the magic bytes come the version and the checksum of the payload.
    start = len(magic) + 1 + _CHECKSUM.size
    if len(content) < start:
        raise ValueError(f"it has {len(content)} bytes, too few for a header")
    version = content[len(magic)]
    if version not in versions:
        readable = " and ".join(map(str, sorted(versions)))
        raise ValueError(f"it has version {version}, and this program reads {readable}")
    payload = content[start:]
    if _CHECKSUM.unpack_from(content, len(magic) + 1)[0] != zlib.crc32(payload):
        raise ValueError("its checksum does not match: it is truncated or damaged")
    return version, payload


def leb128(number: int) -> bytes:
    """An integer that is not negative, in as many bytes as it needs.

    :raises ValueError: if it is negative, or has more than 70 bits.
    """
    if not 0 <= number < 2 ** (7 * _MAX_LEB128_BYTES):
        raise ValueError(f"a number must be from 0 to 2**{7 * _MAX_LEB128_BYTES} - 1, got {number}.")
    # Seven bits a byte, with the high bit set while more follow.
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Reader:
    """Reads a payload from its first byte to its last; nothing is read beyond its end.

    :param content: of the file, or a part of it.
    :param place: of the next byte.
    """

    def __init__(self, content: bytes, place: int = 0) -> None:
        self.content = content
        self.place = place

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return len(self.content) - self.place

    def take(self, count: int) -> bytes:
        """The next `count` bytes.

        :raises ValueError: if there are fewer.
        """
        if not 0 <= count <= self.left:
            raise ValueError(f"it ends {count - self.left} bytes too early")
        start = self.place
        self.place += count
        return self.content[start : self.place]

    def byte(self) -> int:
        """The next byte as a number."""
        return self.take(1)[0]

    def integer(self, most: int | None = None, what: str = "a number") -> int:
        """The next number in LEB128.

        :param most: the largest that makes sense, or None.
        :param what: it counts, for the message.
        :raises ValueError: if it is larger, or has more than 70 bits, or the content ends.
        """
        # Seven bits a byte, the lowest first; the high bit says that more follow.
        number = 0
        for i in range(_MAX_LEB128_BYTES):
            byte = self.byte()
            number |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                if most is not None and number > most:
                    raise ValueError(f"{what} must be at most {most}, got {number}")
                return number
        raise ValueError(f"{what} has more than {_MAX_LEB128_BYTES} bytes")

    def end(self) -> None:
        """Make sure that everything was read.

        :raises ValueError: if there are bytes left.
        """
        if self.left:
            raise ValueError(f"it has {self.left} bytes behind its end")
