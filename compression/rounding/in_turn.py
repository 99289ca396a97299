"""All kernels of a network rounded without labels and training, one layer after the other.

    rounding = InTurn(model, X, curvature_of(model, X))
    codes = rounding.at(rate)                  # one for each kernel, in the order of a file

Once the layers before it are rounded, a layer is given other inputs x' than the x of the network as it was. So its
weights W first become those whose products with x' come nearest to the old ones (asymmetric calibration: Li et al.,
2025), and these are rounded by the moments of x', see `compression.rounding.surgeon`. Both networks are called at once:
the first half of a batch goes through the weights as they were, the second half through those that are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from ..graph.graph import Ref, graph_of, kernel_variables
from ..graph.rebuild import copy_of
from .bits import Grid
from .curvature import Curvature, is_full, moments_of
from .surgeon import fair_step, reckoned_bits, rounded

__all__ = ["InTurn", "on_grid"]

_MOST_NUMBERS = 2**26  # that a layer gives for all rows
_OPEN_SIZE = 256  # of an axis that a network leaves open
_UNITS = 64  # of a layer, or up to twice as many, say how many bits it takes


class InTurn:
    """A network and what is known of it, to be rounded at any rate.

    :ivar middle: the logarithm to the base 2 of the rate at which steps are about as large as weights.

    :param model: a plain one; it is not changed.
    :param X: inputs [n, ...], of several inputs nested as the model takes them; of many large ones the first. None:
        each layer is rounded as if the others stayed as they were.
    :param curvatures: one for each kernel.
    """

    def __init__(self, model: keras.Model, X: ArrayLike | None, curvatures: Sequence[Curvature]) -> None:
        self._model = copy_of(model)
        pairs = kernel_variables(self._model)
        self._kernels = [np.asarray(variable, np.float64) for _, variable in pairs]
        self._curvatures = curvatures
        self._turns = [
            _Turn(layer, kernel, curvature) if X is not None and is_full(layer, variable) else None
            for (layer, variable), kernel, curvature in zip(pairs, self._kernels, curvatures, strict=True)
        ]
        # As many rows as leave the largest tensor of the network within memory; each twice, old and new.
        self._graph = graph_of(self._model)
        shapes = [[size or _OPEN_SIZE for size in tensor.shape[1:]] for tensor in self._graph.tensors]
        rows = max(1, _MOST_NUMBERS // max(math.prod(shape) for shape in shapes))
        self._twice: list[tf.Tensor] = []
        if X is not None:
            twice = keras.tree.map_structure(lambda part: np.concatenate([np.asarray(part)[:rows]] * 2), X)
            self._twice = getattr(self._model, "_functional", self._model)._standardize_inputs(twice)
        # The rate at which a fair step is as large as the weights are on average, in octaves.
        logs = []
        for kernel, curvature in zip(self._kernels, curvatures, strict=True):
            spread = float(np.sqrt(np.mean(np.square(kernel)))) or 1e-3
            logs.append(2 * math.log2(spread / fair_step(curvature.upper, curvature.weight_of_units, 1.0)))
        self.middle = float(np.average(logs, weights=[kernel.size for kernel in self._kernels]))

    def at(self, rate: float) -> list[Grid]:
        """Kernels on grids.

        :param rate: what a bit is worth, in units of half the squared change of outputs.
        """
        # Layers that see their inputs round their kernels when they are called, the others alone.
        turns = [turn for turn in self._turns if turn is not None]
        for turn in turns:
            turn.rate = rate
            turn.code = None
        if turns:
            self._call_in_order()
        return [
            self._alone(number, rate) if turn is None or turn.code is None else turn.code
            for number, turn in enumerate(self._turns)
        ]

    def _call_in_order(self) -> None:
        """Call the layers on all rows; a tensor is there until its last use, where a model would keep all of them."""
        tensors = dict(zip(self._graph.input_numbers, self._twice, strict=True))
        uses = self._graph.consumers()
        for node in self._graph.nodes:
            args, kwargs = keras.tree.map_structure(
                lambda part: tensors[part.number] if isinstance(part, Ref) else part, (node.args, node.kwargs)
            )
            tensors.update(zip(node.outputs, keras.tree.flatten(node.layer(*args, **kwargs)), strict=True))
            del args, kwargs
            uses.subtract(node.sources)
            for number in {*node.sources, *node.outputs}:
                if uses[number] <= 0:
                    del tensors[number]

    def reckoned_bits(self, rate: float) -> float:
        """About how many bits kernels take, each rounded as if the others stayed as they were, by some of its units."""
        total = 0.0
        for kernel, (upper, weight_of_units, order) in zip(self._kernels, self._curvatures, strict=True):
            matrix = _matrix(kernel)
            some = slice(None, None, max(1, matrix.shape[1] // _UNITS))
            step = _fair_step(kernel, upper, weight_of_units, rate)
            integers = rounded(matrix[order, some], upper, step, rate, weight_of_units[..., some])
            total += reckoned_bits(integers) * matrix.size / integers.size
        return total

    def _alone(self, number: int, rate: float) -> Grid:
        kernel = self._kernels[number]
        return on_grid(kernel, _matrix(kernel), self._curvatures[number], rate)


class _Turn:
    """A layer that rounds its kernel when it is called."""

    def __init__(self, layer: keras.Layer, kernel: NDArray[np.float64], curvature: Curvature) -> None:
        self.rate = 0.0
        self.code: Grid | None = None
        self._layer = layer
        self._kernel = kernel
        self._curvature = curvature
        self._before = layer.call
        layer.call = self.call

    def call(self, inputs: tf.Tensor, *args: object, **kwargs: Any) -> Any:
        half = len(inputs) // 2
        if not half:  # of no example, such as places in a sequence
            return self._before(inputs, *args, **kwargs)
        # The first half comes through the weights as they were, the second through rounded ones.
        first = inputs[:half]
        second = inputs[half:]
        if self.code is None:
            self.code = self._rounded(first, second)
        # And so each half goes on with weights of its own kind.
        outputs = self._before(first, *args, **kwargs)
        self._layer.kernel.assign(self.code.values)
        others = self._before(second, *args, **kwargs)
        self._layer.kernel.assign(self._kernel)
        return tf.concat([outputs, others], axis=0)

    def _rounded(self, first: tf.Tensor, second: tf.Tensor) -> Grid:
        matrix = _matrix(self._kernel)
        curvature = self._curvature
        # Inputs are others than before: the weights that come nearest to the old outputs with them.
        if not bool(tf.reduce_all(first == second)):
            moments, products = moments_of(self._layer, second, first, matrix)
            curvature = Curvature.of(moments, curvature.weight_of_units)
            matrix = curvature.adapted(matrix, moments, products)
        return on_grid(self._kernel, matrix, curvature, self.rate)


def on_grid(kernel: NDArray[np.float64], matrix: NDArray[np.float64], curvature: Curvature, rate: float) -> Grid:
    """A kernel on the grid whose step is fair at this rate, if float16 has such a step.

    :param matrix: what the kernel should be, [K, N].
    """
    upper, weight_of_units, order = curvature
    step = _fair_step(kernel, upper, weight_of_units, rate)
    # Inputs are rounded those of the largest moments first, and stored in their own order.
    integers = np.empty(matrix.shape, np.int32)
    integers[order] = rounded(matrix[order], upper, step, rate, weight_of_units)
    return Grid(integers.reshape(kernel.shape), step)


def _fair_step(
    kernel: NDArray[np.float64], upper: NDArray[np.float64], weight_of_units: NDArray[np.float64], rate: float
) -> float:
    """The fair step, within what float16 and 16 bits for the largest weight allow."""
    fair = fair_step(upper, weight_of_units, rate)
    largest = float(np.max(np.abs(kernel), initial=0.0)) or 1.0
    return float(np.float16(np.clip(fair, max(2.0**-14, largest / 2**15), max(2.0**-14, 2 * largest))))


def _matrix(kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    return kernel.reshape(-1, kernel.shape[-1])
