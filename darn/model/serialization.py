"""A DARN in one .npz file: its configuration as JSON and its variables.

save_darn(model, "darn.npz")
model = load_darn("darn.npz")

The shapes of all variables follow from the configuration alone: what a file holds is compared with these before room is
made for any of it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from darn.model.config import DARNConfig, LocalConfig, PixelCNNConfig
from darn.model.layers import EONADE_ORDERS, Wiring
from darn.model.model import DARN
from gpflow_deep_base.files import PathLike
from gpflow_deep_base.storage.container import load_container, save_container
from gpflow_deep_base.storage.limits import refuse_damaged

__all__ = ["Shape", "darn_of", "load_darn", "named_variables", "save_darn", "variable_shapes"]

Shape = tuple[int, ...]
_Shapes = dict[str, Shape]
_KIND = "a saved DARN"
_VERSION = 1


def variable_shapes(config: DARNConfig) -> dict[str, Shape]:
    """The shape of each variable by the name that :func:`darn.model.serialization.named_variables` gives it."""
    wiring = Wiring((config.visible, *config.hidden), config.skip)
    shapes: _Shapes = {"visible_mean": (config.visible,)}
    for level in range(wiring.top + 1):
        shapes |= _within(f"decoders/{level}", _decoder(config, wiring, level))
    for level in range(1, wiring.top + 1):
        shapes |= _within(f"encoders/{level - 1}", _encoder(config, wiring, level))
    return shapes


def _decoder(config: DARNConfig, wiring: Wiring, level: int) -> _Shapes:
    """p(h^level | the layers above), as `darn.model.layers.make_decoder` makes it."""
    local = config.local
    num_local = len(local.hidden) if local is not None else 0
    parents = sum(wiring.sizes[other] for other in wiring.above(level))
    kind = config.prior if level else config.visible_conditional
    n = wiring.sizes[level]
    offset_size = n
    # How the units of the layer depend on each other.
    if local is not None and 1 <= level <= num_local:
        channels = local.grids[level][2]
        window = (local.period, local.period, local.units_kernel**2 * channels, channels)
        conditional: _Shapes = {"bias": (n,), "layer/weights": window}
    else:
        conditional = _conditional(config, kind, n, config.orders)
    if config.pixelcnn is not None and kind == "pixelcnn":
        offset_size = n * config.pixelcnn.maps
    # How they depend on the layers above.
    network: _Shapes = {}
    if local is not None and level < num_local:
        network = {"layer/weights": _periodic(local, level)}
    elif parents and local is not None and level == 0:
        network = _local_stack(local, parents)
    elif parents:
        network = _dense([parents, *config.units, offset_size])
    return _within("conditional", conditional) | _within("network", network)


def _encoder(config: DARNConfig, wiring: Wiring, level: int) -> _Shapes:
    """q(h^level | the layers below), as `darn.model.layers.make_encoder` makes it."""
    # A layer on a grid, local layers below the first one, or a dense network.
    local = config.local
    n = wiring.sizes[level]
    if local is not None and level <= len(local.hidden):
        network: _Shapes = {"layer/weights": _periodic(local, level - 1)}
    elif local is not None and level == 1:
        network = _local_stack(local, n)
    else:
        parents = sum(wiring.sizes[other] for other in wiring.below(level))
        network = _dense([parents, *config.units, n])
    return _within("conditional", _conditional(config, config.encoder, n, None)) | _within("network", network)


def _conditional(config: DARNConfig, kind: str, n: int, orders: int | None) -> _Shapes:
    """A conditional by its name, as `darn.model.layers.make_conditional` makes it, and those of images."""
    units = config.conditional_units
    shapes: _Shapes = {"bias": (n,)}
    if kind == "local" and config.local is not None:
        period = config.local.visible_period
        kernel = config.local.visible_kernel
        return shapes | {"weights": (period, period, kernel, kernel)}
    if kind == "pixelcnn" and config.pixelcnn is not None:
        return shapes | _pixelcnn(config.pixelcnn)
    if kind == "factorial" or n == 1:
        return shapes
    if kind == "linear":
        return shapes | {"weights": (n, n)}
    if kind == "made":
        shapes |= {"kernels/0": (n, units), "kernels/1": (units, n), "biases/0": (units,)}
        return shapes | ({"degrees": (orders, n + units)} if orders is not None and orders > 1 else {})
    # NADE; an EoNADE also tells its units which bits an order has drawn (U).
    shapes |= {"W": (n, units), "V": (n, units), "c": (units,)}
    return shapes | ({"U": (n, units), "orders": (orders or EONADE_ORDERS, n)} if kind == "eonade" else {})


def _dense(sizes: Sequence[int]) -> _Shapes:
    kernels = {f"kernels/{i}": pair for i, pair in enumerate(itertools.pairwise(sizes))}
    return kernels | {f"biases/{i}": (size,) for i, size in enumerate(sizes[1:-1])}


def _periodic(local: LocalConfig, number: int) -> Shape:
    """Weights of the locally connected layer of that number, from 0 next to the image."""
    channels = local.grids[number][2]
    return (local.period, local.period, local.kernels[number] ** 2 * channels, local.filters[number])


def _local_stack(local: LocalConfig, n: int) -> _Shapes:
    """All locally connected layers, and the dense map between the last one and n units."""
    shapes: _Shapes = {"dense": (math.prod(local.grids[-1]), n)}
    for number, grid in enumerate(local.grids[1:]):
        shapes |= {f"layers/{number}/weights": _periodic(local, number), f"biases/{number}": grid}
    return shapes


def _pixelcnn(config: PixelCNNConfig) -> _Shapes:
    filters = config.filters
    shapes: _Shapes = {"hidden": (1, 1, filters, filters), "hidden_bias": (filters,), "last": (1, 1, filters, 1)}
    for number in range(config.layers):
        kernel = config.kernel if number else config.first_kernel
        channels = filters if number else 1
        # The first layer must not see the pixel itself; later ones may, as their inputs do not hold it.
        reach = kernel // 2 + 1 if number else kernel // 2
        layer: _Shapes = {
            "vertical": (reach, kernel, channels, 2 * filters),
            "horizontal": (1, reach, channels, 2 * filters),
            "link": (1, 1, 2 * filters, 2 * filters),
            "out": (1, 1, filters, filters),
            "of_maps": (1, 1, config.maps, 4 * filters),
            "biases/0": (2 * filters,),
            "biases/1": (2 * filters,),
            "biases/2": (filters,),
        }
        shapes |= _within(f"layers/{number}", layer)
    return shapes


def _within(path: str, shapes: _Shapes) -> _Shapes:
    return {f"{path}/{name}": shape for name, shape in shapes.items()}


def named_variables(model: DARN) -> dict[str, tf.Variable]:
    """All variables by their path, such as "decoders/0/network/kernels/0"."""
    variables: dict[str, tf.Variable] = {}

    def visit(path: tuple[str, ...], value: object) -> None:
        # Public attributes alone: private ones hold what is made of these.
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


def check_parameters(arrays: Mapping[str, np.ndarray]) -> None:
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


def darn_of(config: DARNConfig, arrays: Mapping[str, np.ndarray]) -> DARN:
    """The model of a configuration and its variables by name.

    :param config: of the model.
    :param arrays: of the shapes of :func:`darn.model.serialization.variable_shapes`.
    :raises ValueError: if an array has another type, is not finite, or has no orders where there must be some.
    """
    model = DARN(config)
    for name, variable in named_variables(model).items():
        # A container checks names and shapes; types and values are for the model to check.
        array = arrays[name]
        if array.dtype != variable.dtype.as_numpy_dtype:
            raise ValueError(f"its array {name} must be of {variable.dtype.name}, got {array.dtype}")
        if not np.isfinite(array).all():
            raise ValueError(f"its array {name} has NaN or infinity")
        if name.endswith("/orders") and not np.array_equal(np.sort(array), np.sort(variable.numpy())):
            raise ValueError(f"its array {name} must be orders of the units, each of them once")
        variable.assign(array)
    return model


def _shapes(header: Mapping[str, object]) -> dict[str, Shape]:
    return variable_shapes(_config(header))


def _config(header: Mapping[str, object]) -> DARNConfig:
    if set(header) != {"config"}:
        raise ValueError("its header must have the configuration and nothing else")
    return DARNConfig.from_json(json.dumps(header["config"]))
