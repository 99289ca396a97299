"""A DARN in one .npz file: its configuration as JSON and its variables.

save_darn(model, "darn.npz")
model = load_darn("darn.npz")
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from darn.model.model import DARN, DARNConfig
from darn.model.shapes import Shape, variable_shapes
from gpflow_deep_base.container import load_container, save_container
from gpflow_deep_base.files import PathLike
from gpflow_deep_base.limits import refuse_damaged

__all__ = ["darn_of", "load_darn", "named_variables", "save_darn"]

_KIND = "a saved DARN"
_VERSION = 1


def named_variables(model: DARN) -> dict[str, tf.Variable]:
    """All variables by their path, such as "decoders/0/network/kernels/0"."""
    variables: dict[str, tf.Variable] = {}

    def visit(path: tuple[str, ...], value: Any) -> None:
        if isinstance(value, tf.Variable):
            variables["/".join(path)] = value
        elif isinstance(value, tf.Module):
            for name, inner in vars(value).items():
                if not name.startswith("_"):
                    visit((*path, name), inner)
        elif isinstance(value, list | tuple):
            for number, inner in enumerate(value):
                visit((*path, str(number)), inner)

    visit((), model)
    return dict(sorted(variables.items()))


def save_darn(model: DARN, path: PathLike) -> None:
    """Write a file that :func:`load_darn` reads; it appears under its name only when it is whole.

    :param model: to save.
    :param path: of the file; missing folders are made.
    :raises ValueError: if a parameter is not finite.
    :raises OSError: if it cannot be written; what was there before stays.
    """
    arrays = {name: variable.numpy() for name, variable in named_variables(model).items()}
    check_parameters(arrays)
    header = {"config": json.loads(model.config.to_json())}
    save_container(path, kind=_KIND, version=_VERSION, header=header, arrays=arrays)


def check_parameters(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse to write parameters that are NaN or infinite.

    :param arrays: by name.
    :raises ValueError: naming the first that is not finite.
    """
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"the parameters {name} must be finite, got NaN or infinity: training has diverged.")


def load_darn(path: PathLike, *, max_bytes: int | None = None) -> DARN:
    """Read a file of :func:`save_darn`. Nothing is built before the file's arrays are those of its configuration.

    :param path: of the file.
    :param max_bytes: that its arrays may take; None: 100 MB and three times the file's length.
    :raises ValueError: if it is missing, damaged, another kind of file, or takes more.
    """
    stored = load_container(path, kind=_KIND, versions=(_VERSION,), expected=_shapes, max_bytes=max_bytes)
    try:
        return darn_of(_config(stored.header), stored.arrays)
    except ValueError as error:
        refuse_damaged(path, _KIND, error)


def darn_of(config: DARNConfig, arrays: Mapping[str, NDArray[Any]]) -> DARN:
    """The model of a configuration and its variables by name.

    :param config: of the model.
    :param arrays: of the shapes of :func:`darn.model.shapes.variable_shapes`.
    :raises ValueError: if an array has another type, is not finite, or has no orders where there must be some.
    """
    model = DARN(config)
    for name, variable in named_variables(model).items():
        array = arrays[name]
        if array.dtype != variable.dtype.as_numpy_dtype:
            raise ValueError(f"its array {name} must be of {variable.dtype.name}, got {array.dtype}")
        if not np.isfinite(array).all():
            raise ValueError(f"its array {name} has NaN or infinity")
        if name.endswith("/orders") and not np.array_equal(np.sort(array), np.sort(variable.numpy())):
            raise ValueError(f"its array {name} must be orders of the units, each of them once")
        variable.assign(array)
    return model


def _shapes(header: dict[str, Any]) -> dict[str, Shape]:
    return variable_shapes(_config(header))


def _config(header: dict[str, Any]) -> DARNConfig:
    if set(header) != {"config"}:
        raise ValueError("its header must have the configuration and nothing else")
    return DARNConfig.from_json(json.dumps(header["config"]))
