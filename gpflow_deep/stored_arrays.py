"""One file with a structure and arrays: an .npz archive without pickled objects, which `numpy.load` reads, too.

The structure is JSON in the member structure.json, every array a member of its own. Nothing is compressed: what
a reader allocates is in proportion to the file's length, whatever the file says.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NUMBERS_AND_TEXT", "Arrays", "pack", "unpack"]

Arrays = dict[str, NDArray[Any]]

STRUCTURE = "structure.json"

#: The largest structure that is written or read. It takes about 1 kB for each parameter.
MAX_STRUCTURE_BYTES = 16 * 2**20

#: The kinds of NumPy types that an array may have; no objects.
NUMBERS_AND_TEXT = "biufcSU"


def pack(structure: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The content of a file; equal content for equal input.

    :param arrays: of numbers or text, by names that are no paths.
    :raises ValueError: if the structure is too large, or an array has objects.
    """
    text = json.dumps(structure, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_STRUCTURE_BYTES:
        raise ValueError(
            f"the model without its arrays takes {len(text)} bytes, more than {MAX_STRUCTURE_BYTES}; keep long lists "
            "of numbers as NumPy arrays."
        )
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(STRUCTURE), text)
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getbuffer())
    return content.getvalue()


def unpack(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """What `pack` made of a structure and arrays.

    :raises ValueError: if the file is missing, damaged, or of another kind. It says what is wrong, but not the path.
    """
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            members = _checked(archive, os.fstat(file.fileno()).st_size)
            if STRUCTURE not in members:
                raise ValueError(f"it has no {STRUCTURE}: it is of an earlier version, or of another program")
            if members[STRUCTURE].file_size > MAX_STRUCTURE_BYTES:
                raise ValueError(f"its {STRUCTURE} is larger than {MAX_STRUCTURE_BYTES} bytes")
            structure = json.loads(archive.read(STRUCTURE), parse_constant=_refuse_constant)
            arrays = {
                name.removesuffix(".npy"): _array(archive.read(name), name) for name in members if name != STRUCTURE
            }
    except (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error) or type(error).__name__) from error  # RuntimeError: encrypted, or nested too deeply
    if not isinstance(structure, dict):
        raise ValueError(f"its {STRUCTURE} is no object")
    return structure, arrays


def _checked(archive: zipfile.ZipFile, length: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, if they all fit into the file side by side."""
    infos = archive.infolist()
    members = {info.filename: info for info in infos}
    if len(members) < len(infos):
        raise ValueError("it has two members of one name")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"its member {info.filename} is compressed")
    if (total := sum(info.file_size for info in infos)) > length:
        raise ValueError(f"its members claim {total} bytes, but it has {length}")
    return members


def _array(content: bytes, name: str) -> NDArray[Any]:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its member {name} has the unknown version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = read(stream)
    if dtype.kind not in NUMBERS_AND_TEXT or dtype.names is not None:
        raise ValueError(f"its member {name} must have numbers or text, got {dtype}")
    present, needed = len(content) - stream.tell(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or present != needed:
        raise ValueError(f"its member {name} must have {needed} bytes for shape {list(shape)}, got {present}")
    flat = np.frombuffer(content, dtype, offset=stream.tell()) if present else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if is_fortran else "C").astype(dtype.newbyteorder("="))


def _refuse_constant(text: str) -> None:
    raise ValueError(f"its {STRUCTURE} has {text}")
