"""A DARN in one .npz file: its configuration as JSON and its variables."""

from __future__ import annotations

import io
import os
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from darn.model import DARN, DARNConfig

__all__ = ["load_darn", "named_variables", "save_darn", "write_whole"]

_FORMAT = "darn 2"
_OLD_FORMAT = "darn 1"  # had the prior beside the decoders


def named_variables(model: DARN) -> dict[str, tf.Variable]:
    """All variables by their path, such as "decoders/0/network/kernels/0"."""
    found: dict[str, tf.Variable] = {}

    def visit(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, tf.Variable):
            found["/".join(path)] = value
        elif isinstance(value, tf.Module):
            for name, inner in vars(value).items():
                if not name.startswith("_"):
                    visit((*path, name), inner)
        elif isinstance(value, list | tuple):
            for number, inner in enumerate(value):
                visit((*path, str(number)), inner)

    visit((), model)
    return dict(sorted(found.items()))


def save_darn(path: str | os.PathLike[str], model: DARN) -> None:
    """Write a file that :func:`load_darn` reads; it appears under its name only when it is whole.

    :raises ValueError: if a parameter is not finite.
    :raises OSError: if it cannot be written; what was there before stays.
    """
    arrays = {name: variable.numpy() for name, variable in named_variables(model).items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"the parameters {name} must be finite, got NaN or infinity: training has diverged.")
    content = {"format": _FORMAT, "config": model.config.to_json(), **arrays}
    write_whole(Path(path), lambda stream: np.savez_compressed(stream, **content))


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Make a file by `write`, which gets its stream; it appears under its name only when it is whole.

    :raises OSError: if it cannot be written; what was there before stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with open(temporary, "wb") as stream:
            write(stream)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_darn(path: str | os.PathLike[str]) -> DARN:
    """Read a file of :func:`save_darn`.

    :raises ValueError: if it is missing, damaged, or another kind of file.
    """
    try:
        content = _read(Path(path))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} cannot be read as a saved DARN ({error}); check the path or copy it again."
        ) from error
    found = str(content.pop("format", ""))
    if found not in (_FORMAT, _OLD_FORMAT):
        raise ValueError(f"{path} is no DARN saved by save_darn; give the darn.npz of a run.")
    model = DARN(DARNConfig.from_json(str(content.pop("config"))))
    variables = named_variables(model)
    if found == _OLD_FORMAT:
        top = f"decoders/{model.wiring.top}/conditional/"
        content = {
            name.replace("prior/", top, 1) if name.startswith("prior/") else name: a for name, a in content.items()
        }
    if {name: array.shape for name, array in content.items()} != {n: tuple(v.shape) for n, v in variables.items()}:
        raise ValueError(f"{path} holds other parameters than its configuration says; copy it again.")
    for name, variable in variables.items():
        variable.assign(content[name])
    return model


def _read(path: Path) -> dict[str, NDArray]:
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
