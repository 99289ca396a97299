"""Pruned units removed for good: a smaller plain network, or a smaller Bayesian one to train further.

A chain of layers is cut by three rules, with masked posterior means as weights:

1. An output that does not vary with the input (a masked filter, a unit without incoming weights) is a constant; it is
   removed and folded into the next bias. Before a convolution with zero padding that is exact only for the constant 0;
   there one of the others stays, with zero weights, and stands for all.
2. An input is kept if it varies and has a weight to an output that is kept.
3. After `Flatten`, the input (h W + w) C + c is kept by its own mask; a channel stays if one of its positions does.

So the shrunk network computes what the masked one does.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from .base import BayesianLayer, bayesian_layers
from .chain import Link, chain, is_convolution, is_elementwise, is_weighted
from .cutting import IndexMaps, Kept, checked_kept, cut, role_of, units_of
from .scales import PerWeight
from .select_inputs import SelectInputs
from .supported import DROPOUT, ELEMENTWISE
from .thresholds import Thresholds, masks

__all__ = ["NothingLeftError", "Shrunk", "shrink", "shrink_bayesian", "shrink_details", "slice_bayesian"]


class NothingLeftError(ValueError):
    """A layer is pruned to nothing."""


class Shrunk(NamedTuple):
    """A plain network and what it was cut from; tuples and lists have one entry for each Dense and Conv2D, in order."""

    model: keras.Model
    """Plain Keras layers and `SelectInputs`."""
    variances: list[np.ndarray]
    """Posterior variances of the kept weights (Eqs. 11, 20), shaped as the kernels; 0 for layers not Bayesian."""
    architecture: tuple[int, ...]
    """Kept filters of convolutions and kept inputs of dense layers, as in Table 1."""
    kept_weights: tuple[int, ...]
    """Kept weights without biases; with a prior on each weight, those that are not 0."""
    original_weights: tuple[int, ...]
    """Weights of the model that was given, without biases."""
    kept: dict[str, Kept]
    """Kept inputs and outputs of each layer, by name."""


class _Plan(NamedTuple):
    kept: dict[str, Kept]
    kernels: dict[str, np.ndarray]
    biases: dict[str, np.ndarray]
    merged: dict[str, int]


def shrink(model: keras.Model, thresholds: Thresholds = None) -> keras.Model:
    """The plain, smaller Keras model that computes what `model` does with its pruned groups masked.

    :param model: chain of Bayesian and plain layers; it is not changed.
    :param thresholds: as in :func:`compression.thresholds.masks`. Groups that are masked already are pruned as well.
    :raises ValueError: if a layer is pruned to nothing, weights are not finite, or the model is not a supported chain.
    """
    return shrink_details(model, thresholds).model


def shrink_details(model: keras.Model, thresholds: Thresholds = None) -> Shrunk:
    """What :func:`shrink` does, with variances and sizes."""
    links = chain(model)
    plan = _plan(links, masks(model, thresholds))
    weighted = [link.layer for link in links if is_weighted(link.layer)]
    shrunk = _rebuild(model, links, plan.kept, _plain)
    variances, kept_weights = [], []
    for layer in weighted:
        kernel = cut(plan.kernels[layer.name], "kernel", plan.kept[layer.name])
        bias = plan.biases[layer.name][plan.kept[layer.name].outputs]
        shrunk.get_layer(layer.name).set_weights([kernel, bias])
        is_bayesian = isinstance(layer, BayesianLayer)
        variance = np.asarray(layer.posterior_variance_kernel()) if is_bayesian else np.zeros_like(layer.kernel)
        variances.append(cut(variance, "kernel", plan.kept[layer.name]))
        kept_weights.append(int(np.count_nonzero(kernel)) if isinstance(layer, PerWeight) else kernel.size)
    return Shrunk(
        model=shrunk,
        variances=variances,
        architecture=tuple(
            len(plan.kept[layer.name].outputs if is_convolution(layer) else plan.kept[layer.name].inputs)
            for layer in weighted
        ),
        kept_weights=tuple(kept_weights),
        original_weights=tuple(plan.kernels[layer.name].size for layer in weighted),
        kept=plan.kept,
    )


def shrink_bayesian(model: keras.Model, thresholds: Thresholds = None) -> tuple[keras.Model, dict[str, Kept]]:
    """A smaller Bayesian model of the same layers without the pruned groups, to go on training.

    All variables are copied, those of the noise and `kl_weight` included. In inference the new model gives what `model`
    gives with the pruned groups masked: constants are folded into biases with the posterior means.

    :param model: chain of Bayesian and plain layers; it is not changed.
    :param thresholds: as in :func:`compression.thresholds.masks`.
    :return: the new, uncompiled model, and the kept inputs and outputs of each layer by name. To rebuild the
        architecture from a record, see :func:`slice_bayesian`; for the state of the optimizer `carry_optimizer`.
    :raises ValueError: as :func:`shrink`.
    """
    links = chain(model)
    found = masks(model, thresholds)
    plan = _plan(links, found)
    smaller = slice_bayesian(model, plan.kept)
    for layer in bayesian_layers(smaller):
        layer.mask.assign(cut(found[layer.name], role_of(model.get_layer(layer.name), "mask"), plan.kept[layer.name]))
    for name, kept in plan.kept.items():
        layer, bias = smaller.get_layer(name), plan.biases[name][kept.outputs]
        if layer.use_bias:
            layer.bias.assign(bias)
        elif np.any(bias != 0.0):
            raise ValueError(f"the layer {name} has no bias to fold pruned units into; build it with use_bias=True.")
    for name, one in plan.merged.items():
        _assign_input(smaller.get_layer(name), cut(plan.kernels[name], "kernel", plan.kept[name]), one, plan.kept[name])
    return smaller, plan.kept


def slice_bayesian(model: keras.Model, kept: IndexMaps) -> keras.Model:
    """`model` with only the given inputs and outputs of each layer; variables are sliced, biases not folded.

    To resume a run that was shrunk: build the original model, slice it by the recorded (composed) index maps, and
    restore the checkpoint into it.

    :param kept: kept inputs and outputs of each Dense and Conv2D by name, as from :func:`shrink_bayesian`; sequences of
        integers will do.
    :raises ValueError: if a layer is missing or an index is out of range.
    """
    links = chain(model)
    weighted = [link.layer for link in links if is_weighted(link.layer)]
    if missing := [layer.name for layer in weighted if layer.name not in kept]:
        raise ValueError(f"kept has no entry for the layers {missing}; it has {sorted(kept)}.")
    kept = {layer.name: checked_kept(layer, kept[layer.name]) for layer in weighted}
    smaller = _rebuild(model, links, kept, _resized)
    for layer in weighted:
        new = smaller.get_layer(layer.name)
        for old_variable, variable in zip(layer.weights, new.weights, strict=True):
            variable.assign(cut(np.asarray(old_variable), role_of(layer, old_variable.name), kept[layer.name]))
    return smaller


def _plan(links: Sequence[Link], found: Mapping[str, np.ndarray]) -> _Plan:
    weighted = [link.layer for link in links if is_weighted(link.layer)]
    for layer in weighted:
        if layer.name in found and not np.any(found[layer.name]):
            raise NothingLeftError(
                f"the layer {layer.name} is pruned to nothing: all {found[layer.name].size} groups are at or above the "
                f"threshold. Raise its threshold, or train longer with a smaller weight of the KL."
            )
    kernels, biases = {}, {}
    for layer in weighted:
        is_bayesian = isinstance(layer, BayesianLayer)
        kernels[layer.name] = np.asarray(
            layer.posterior_mean_kernel(found[layer.name]) if is_bayesian else layer.kernel, dtype=np.float64
        )
        units = kernels[layer.name].shape[-1]
        biases[layer.name] = np.asarray(layer.bias, np.float64) if layer.use_bias else np.zeros(units)
        if not (np.all(np.isfinite(kernels[layer.name])) and np.all(np.isfinite(biases[layer.name]))):
            raise ValueError(f"weights of the layer {layer.name} are not finite; restore an earlier state.")
    forced = {layer.name: np.zeros(kernels[layer.name].shape[-1], bool) for layer in weighted}
    forced[weighted[-1].name][:] = True  # the outputs of the model stay
    while (flow := _flow(links, kernels, biases, forced)) is None:
        pass
    return _Plan(_kept(links, flow), flow.kernels, flow.biases, flow.merged)


class _Flow(NamedTuple):
    """Of each layer: inputs and outputs that vary with the model's input, kernel, bias with constants folded in."""

    varies: dict[str, Kept]
    kernels: dict[str, np.ndarray]
    biases: dict[str, np.ndarray]
    merged: dict[str, int]
    """Convolutions whose constant inputs are merged into one, and which."""


def _flow(
    links: Sequence[Link],
    kernels: Mapping[str, np.ndarray],
    biases: Mapping[str, np.ndarray],
    forced: Mapping[str, np.ndarray],
) -> _Flow | None:
    """Rule 1, from the input on. None after adding an output to `forced` that has to stay: try again."""
    flow = _Flow({}, {}, {}, {})
    varies = np.ones(links[0].input_shape[-1], bool)
    constant, fixed, source, producer = np.zeros(varies.size), ~varies, np.arange(varies.size), ""
    for layer, input_shape in links:
        if is_weighted(layer):
            kernel = kernels[layer.name]
            if is_convolution(layer) and layer.padding == "same" and kernel.shape[:2] != (1, 1):
                loose = ~varies & (constant != 0.0) & _used(kernel, np.ones(kernel.shape[-1], bool))
                if loose.any():
                    one = int(np.argmax(np.abs(constant) * (fixed & varies)))
                    if not fixed[one] or not varies[one] or constant[one] == 0.0:
                        forced[producer][source[np.argmax(np.abs(constant) * loose)]] = True
                        return None
                    kernel = _merged(kernel, loose, constant / constant[one], one)
                    flow.merged[layer.name] = one
            bias = biases[layer.name] + np.where(varies, 0.0, constant) @ kernel.sum(axis=tuple(range(kernel.ndim - 2)))
            fixed = ~np.any(kernel[..., varies, :] != 0.0, axis=tuple(range(kernel.ndim - 1)))
            outputs = ~fixed | forced[layer.name]
            flow.varies[layer.name] = Kept(varies, outputs)
            flow.kernels[layer.name], flow.biases[layer.name] = kernel, bias
            varies, constant, source, producer = outputs, bias, np.arange(bias.size), layer.name
        if is_elementwise(layer):  # a layer that mixes is the last, and all its features vary
            constant = _apply(layer, constant)
        if isinstance(layer, keras.layers.Flatten):
            repeats = math.prod(input_shape[1:-1])
            varies, constant, fixed, source = (np.tile(a, repeats) for a in (varies, constant, fixed, source))
        elif isinstance(layer, SelectInputs):
            varies, constant, fixed, source = (a[layer.indices] for a in (varies, constant, fixed, source))
    return flow


def _merged(kernel: np.ndarray, loose: np.ndarray, ratios: np.ndarray, one: int) -> np.ndarray:
    """`kernel` with the weights of the constant inputs `loose`, in units of the constant input `one`, moved to it."""
    kernel = kernel.copy()
    kernel[..., one, :] += np.tensordot(ratios[loose], kernel[..., loose, :], axes=(0, -2))
    kernel[..., loose, :] = 0.0
    return kernel


def _kept(links: Sequence[Link], flow: _Flow) -> dict[str, Kept]:
    """Rules 2 and 3, from the output back."""
    kept: dict[str, Kept] = {}
    needed: np.ndarray | None = None
    for layer, input_shape in reversed(links):
        if is_weighted(layer):
            varies = flow.varies[layer.name]
            outputs = varies.outputs if needed is None else varies.outputs & needed
            needed = varies.inputs & _used(flow.kernels[layer.name], outputs)
            if not needed.any():
                raise NothingLeftError(
                    f"the layer {layer.name} is pruned to nothing: no weight is left between an input that varies and "
                    f"an output in use. Raise the thresholds of this layer and its neighbours."
                )
            kept[layer.name] = Kept(np.flatnonzero(needed), np.flatnonzero(outputs))
        elif needed is not None and isinstance(layer, keras.layers.Flatten):
            needed = needed.reshape(-1, input_shape[-1]).any(axis=0)
        elif needed is not None and isinstance(layer, SelectInputs):
            selected, needed = layer.indices[needed], np.zeros(input_shape[-1], bool)
            needed[selected] = True
    return dict(reversed(kept.items()))


def _used(kernel: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Inputs with a weight to one of `outputs`."""
    return np.any(kernel[..., outputs] != 0.0, axis=(*range(kernel.ndim - 2), kernel.ndim - 1))


def _apply(layer: keras.layers.Layer, constant: np.ndarray) -> np.ndarray:
    if isinstance(layer, ELEMENTWISE):
        return np.asarray(layer(constant[None].astype(layer.compute_dtype)))[0].astype(np.float64)
    if is_weighted(layer):
        return np.asarray(layer.activation(tf.constant(constant, layer.compute_dtype))).astype(np.float64)
    return constant


def _rebuild(
    model: keras.Model,
    links: Sequence[Link],
    kept: IndexMaps,
    make: Callable[[keras.layers.Layer, int], keras.layers.Layer],
) -> keras.Model:
    """A Sequential of the layers that `make` gives, with `SelectInputs` where features have to be left out.

    The features of the tensor at hand, numbered as in `model`, are `present`; `origin` numbers those that `model` has
    here, after its own `SelectInputs`.
    """
    layers = [keras.Input(links[0].input_shape[1:], dtype=model.inputs[0].dtype)]
    size = links[0].input_shape[-1]
    present = origin = np.arange(size)

    def select(wanted: np.ndarray) -> None:
        positions = np.searchsorted(present, wanted)
        if not np.array_equal(positions, np.arange(present.size)):
            layers.append(SelectInputs(positions))

    for layer, input_shape in links:
        if is_weighted(layer):
            select(origin[kept[layer.name].inputs])
            layers.append(make(layer, len(kept[layer.name].outputs)))
            present, size = kept[layer.name].outputs, units_of(layer)
            origin = np.arange(size)
        elif isinstance(layer, SelectInputs):
            origin = origin[layer.indices]
        elif isinstance(layer, keras.layers.Flatten):
            offsets = np.arange(math.prod(input_shape[1:-1]))[:, None] * size
            present, origin, size = (offsets + present).ravel(), (offsets + origin).ravel(), size * len(offsets)
            layers.append(make(layer, 0))
        elif not isinstance(layer, DROPOUT) or make is _resized:
            layers.append(make(layer, 0))
    select(origin)
    return keras.Sequential(layers, name=model.name)


def _assign_input(layer: keras.layers.Layer, kernel: np.ndarray, one: int, kept: Kept) -> None:
    """Make the weights from input `one` those of `kernel`, a posterior mean."""
    row = np.searchsorted(kept.inputs, one)
    if not isinstance(layer, BayesianLayer):
        layer.kernel.assign(kernel)
        return
    mean, scale = layer.kernel_mean.numpy(), np.broadcast_to(layer.scale_moments()[0], kernel.shape)
    mean[..., row, :] = (kernel / scale)[..., row, :]
    layer.kernel_mean.assign(mean)
    if isinstance(layer, PerWeight):
        mask = layer.mask.numpy()
        mask[..., row, :] = 1.0
        layer.mask.assign(mask)


def _plain(layer: keras.layers.Layer, units: int) -> keras.layers.Layer:
    if not is_weighted(layer):
        return type(layer).from_config(layer.get_config())
    settings = {"activation": layer.activation, "name": layer.name, "dtype": layer.variable_dtype}
    if is_convolution(layer):
        return keras.layers.Conv2D(units, layer.kernel_size, layer.strides, layer.padding, **settings)
    return keras.layers.Dense(units, **settings)


def _resized(layer: keras.layers.Layer, units: int) -> keras.layers.Layer:
    config = layer.get_config()
    if is_weighted(layer):
        config["filters" if is_convolution(layer) else "units"] = units
    return type(layer).from_config(config)
