"""Files as strangers could have made them: mutants of whole ones, drawn by a generator of random numbers."""

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from gpflow_deep_base.storage.container import container_bytes

__all__ = ["changed_bytes", "changed_json", "resealed", "zip_bomb", "zip_structure"]

_ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, 2**31, 10**9, 10**30, "", "x", "\u2028", [], {}, [[]], [[[[]]]], [0] * 1000),
    *({"again": 3}, {"again": 10**6}, {"float": "nan"}, {"function": "tf.exp"}, {"shape": [10**9, 10**9]}),
    *({"range": [0, 10**8, 1]}, {"range": [0, 5, 0]}, {"tuple": [1]}, {"dict": [[[], 1]]}, {"numpy_dtype": "O"}),
)


def changed_bytes(content: bytes, draw: random.Random, *, first: int = 0, num_last: int = 0) -> bytes:
    """Damage of one or two places: bits, runs of zeros or ones, bytes too few, too many or twice; a file cut off.

    :param first: bytes at the beginning that stay.
    :param num_last: bytes at the end that stay.
    """
    stop = len(content) - num_last
    head, body, tail = content[:first], bytearray(content[first:stop]), content[stop:]
    for _ in range(draw.choice((1, 1, 2))):
        place = draw.randrange(min(len(body), draw.choice((64, 400, len(body)))) or 1)
        match draw.randrange(7):
            case 0:
                body[place : place + 1] = bytes(byte ^ 1 << draw.randrange(8) for byte in body[place : place + 1])
            case 1:
                body[place : place + 8] = bytes(8)
            case 2:
                body[place : place + 5] = b"\xff" * 5
            case 3:
                body[place:place] = body[place : place + 32]
            case 4:
                body[place:place] = draw.randbytes(draw.randrange(1, 9))
            case 5:
                del body[place : place + draw.randrange(1, 9)]
            case 6:
                del body[place:]
    return head + bytes(body) + tail


def changed_json(content: Any, draw: random.Random) -> Any:
    """The same JSON with one node removed or replaced, by something odd or by another node."""
    changed = copy.deepcopy(content)
    places: list[tuple[Any, Any]] = []
    nodes = [changed]
    while nodes:
        node = nodes.pop()
        items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
        places += [(node, key) for key, _ in items]
        nodes += [value for _, value in items if isinstance(value, dict | list)]
    parent, key = draw.choice(places)
    if draw.random() < 0.2:
        del parent[key]
    elif draw.random() < 0.3:
        other, name = draw.choice(places)
        parent[key] = copy.deepcopy(other[name])
    else:
        parent[key] = copy.deepcopy(draw.choice(_ODD))
    return changed


def _changed_array(array: np.ndarray, draw: random.Random) -> np.ndarray:
    """Another shape, another type, or other values."""
    match draw.randrange(6):
        case 0:
            return array.reshape(-1)
        case 1:
            return array[None]
        case 2:
            return np.zeros(
                array.shape, draw.choice(("f2", "f8", "i1", "i8", "u8", "?", "c16", "U3", "S2", "M8[D]", "m8[s]"))
            )
        case 3:
            return np.full(array.shape, draw.choice((np.nan, np.inf, -1e300)))
        case 4:
            return np.zeros(draw.choice(((), (0,), (1, 0), (3,) * 5)), array.dtype)
        case _:
            return np.zeros(array.shape, array.dtype)


def resealed(content: bytes, draw: random.Random) -> bytes:
    """A container whose header, names or arrays are changed, with the checksum of what is there now."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive, np.load(io.BytesIO(content)) as stored:
        start = json.loads(archive.read("header.json"))
        arrays = {name: stored[name] for name in stored.files if name != "header.json"}
    header = start["header"]
    name = draw.choice(sorted(arrays))
    match draw.randrange(6):
        case 0:
            arrays[name] = _changed_array(arrays[name], draw)
        case 1:
            del arrays[name]
        case 2:
            arrays[draw.choice(("x", "../x", "arr_0"))] = arrays[name]
        case _:
            header = changed_json(header, draw)
            if not isinstance(header, dict):
                header = {}
    return container_bytes(kind=start["kind"], version=start["version"], header=header, arrays=arrays)


def zip_structure(content: bytes, draw: random.Random) -> bytes:
    """An .npz file with one member damaged, replaced, doubled, renamed or left out, and right checksums of members."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = draw.randrange(len(members))
    name, member = members[place]
    match draw.randrange(6):
        case 0 | 1:
            members[place] = name, changed_bytes(member, draw)
        case 2:
            members.append((draw.choice(("x.npy", "../y.npy", "/z.npy", "d/", name)), member))
        case 3:
            del members[place]
        case 4:
            members[place] = (
                name,
                _npy(
                    draw.choice(("|O", "<f8", "V8", "<U9", "i1,i2")),
                    draw.choice(("(10**9,)", "(-1,)", "(2, 1" + "0" * 30 + ")", "1")),
                ),
            )
        case 5:
            array = np.lib.format.read_array(io.BytesIO(member)) if name.endswith(".npy") else np.zeros(3)
            stream = io.BytesIO()
            np.lib.format.write_array(stream, _changed_array(array, draw))
            members[place] = name, stream.getvalue()
    return _archive(members, draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))


def zip_bomb(content: bytes, draw: random.Random) -> bytes:
    """An .npz file of which one array is 400 MiB of zeros, packed a thousandfold."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    packed = draw.choice([name for name, _ in members])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, member in members:
            if name != packed:
                archive.writestr(name, member)
                continue
            with archive.open(name, "w") as file:
                file.write(_npy("<f8", f"({50 * 2**20},)"))
                for _ in range(400):
                    file.write(bytes(2**20))
    return stream.getvalue()


def with_checksum(place: int, checksum: Callable[[bytes], bytes]) -> Callable[[bytes, random.Random], bytes]:
    """Damage behind a checksum of all that follows it, and the checksum of that."""
    length = len(checksum(b""))

    def change(content: bytes, draw: random.Random) -> bytes:
        payload = changed_bytes(content[place + length :], draw)
        return content[:place] + checksum(payload) + payload

    return change


def _npy(dtype: str, shape: str) -> bytes:
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text = text.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def _archive(members: list[tuple[str, bytes]], packing: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, member in members:
            archive.writestr(zipfile.ZipInfo(name), member, packing)
    return stream.getvalue()
