"""A trained Keras model in Bayesian form, to be trained on and pruned (Sec. 5: VGG starts from pretrained means)."""

import logging
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from .base import BayesianLayer
from .chain import Link, chain, is_convolution, is_weighted
from .layers import Conv2DGHS, Conv2DGNJ, Conv2DSVD, DenseGHS, DenseGNJ, DenseSVD
from .supported import DROPOUT

__all__ = ["compress"]

LOG = logging.getLogger(__name__)

_LAYERS: dict[str, tuple[type, type]] = {
    "gnj": (DenseGNJ, Conv2DGNJ),
    "ghs": (DenseGHS, Conv2DGHS),
    "svd": (DenseSVD, Conv2DSVD),
}


def compress(
    model: keras.Model,
    *,
    num_train: float,
    prior: str = "gnj",
    std_cap: float | Mapping[str, float] | None = None,
    seed: int = 0,
    **settings: Any,
) -> keras.Model:
    """The Bayesian form of a trained model: the same predictions, with a posterior around its weights.

        bayesian = compress(model, num_train=len(x))
        bayesian.compile("adam", loss)
        bayesian.fit(x, y, epochs=50, callbacks=[KLWarmup(10)])
        small = shrink(bayesian)

    Dense and Conv2D layers become Bayesian ones of the same name, whose posterior means are the weights. Batch
    normalisation is folded into the layer before it (its moving statistics); dropout and noise of all kinds are
    removed; regularisers, constraints and mixed precision are left out, with a warning. Activations, pooling and
    Flatten are copied. `model` is not changed.

    The loss is taken for the mean negative log-likelihood in nats of an example. That holds for cross-entropies. A mean
    squared error would be one for targets whose noise has variance 1/2: give it with the weight of the KL,
    `KLWarmup(epochs, weight=2 * variance)`, or call `compression.fit`, which learns it.

    :param model: built Sequential or single-path functional model.
    :param num_train: number of training examples.
    :param prior: "gnj" (group normal-Jeffreys), "ghs" (group horseshoe) or "svd" (each weight, unstructured).
    :param std_cap: largest standard deviation of the weights, for all layers or by name; see `BayesianLayer`.
    :param seed: of the noise; each layer gets a stream of its own.
    :param settings: further arguments of the layers, such as `kl`, `scale_speed`, `initial_log_std` or `tau0`.
        `scale_speed` multiplies the steps of Adam and its relatives; steps of plain gradients it multiplies twice, so
        with SGD take its root.
    :return: an uncompiled Sequential.
    :raises ValueError: if the model is not one chain of supported layers (naming the layer), `prior` is unknown, or an
        argument is out of range.
    """
    if prior not in _LAYERS:
        raise ValueError(f"prior must be one of {sorted(_LAYERS)}, got {prior!r}.")
    links = chain(model, also=(keras.layers.BatchNormalization,))
    weighted = [link.layer for link in links if is_weighted(link.layer)]
    if bayesian := [layer.name for layer in weighted if isinstance(layer, BayesianLayer)]:
        raise ValueError(f"the layers {bayesian} are Bayesian already; compress() takes a plain model.")
    caps = std_cap if isinstance(std_cap, Mapping) else {layer.name: std_cap for layer in weighted}
    if unknown := sorted(set(caps) - {layer.name for layer in weighted}):
        raise ValueError(f"std_cap names {unknown}; the layers with weights are {[layer.name for layer in weighted]}.")
    _warn_of_what_is_lost(weighted)
    folded = _folded_weights(links)
    layers = [keras.Input(links[0].input_shape[1:], dtype=model.inputs[0].dtype)]
    for index, (layer, _) in enumerate(links):
        if isinstance(layer, (keras.layers.BatchNormalization, *DROPOUT)):
            continue
        if not is_weighted(layer):
            layers.append(type(layer).from_config(layer.get_config()))
            continue
        common = {
            "num_train": num_train,
            "activation": layer.activation,
            "std_cap": caps.get(layer.name),
            "seed": seed * len(links) + index,
            "name": layer.name,
            "dtype": layer.variable_dtype,
            **settings,
        }
        dense, convolution = _LAYERS[prior]
        if is_convolution(layer):
            new = convolution(layer.filters, layer.kernel_size, strides=layer.strides, padding=layer.padding, **common)
        else:
            new = dense(layer.units, **common)
        layers.append(new)
    result = keras.Sequential(layers, name=model.name)
    for name, (kernel, bias) in folded.items():
        result.get_layer(name).kernel_mean.assign(kernel)
        result.get_layer(name).bias.assign(bias)
    return result


def _warn_of_what_is_lost(weighted: list[keras.layers.Layer]) -> None:
    for kind in ("regularizer", "constraint"):
        names = [f"{part}_{kind}" for part in ("kernel", "bias", "activity")]
        if lost := [layer.name for layer in weighted if any(getattr(layer, name, None) for name in names)]:
            LOG.warning("the %ss of the layers %s are left out: the prior takes their place.", kind, ", ".join(lost))
    if low := [layer for layer in weighted if layer.compute_dtype != layer.variable_dtype]:
        shown = ", ".join(layer.name for layer in low)
        LOG.warning("the layers %s compute in %s; Bayesian ones do in float32.", shown, low[0].compute_dtype)


def _folded_weights(links: list[Link]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Kernel and bias of each layer with weights, with the batch normalisation after it folded in."""
    weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    previous: keras.layers.Layer | None = None
    for layer, input_shape in links:
        if is_weighted(layer):
            kernel = np.asarray(layer.kernel, np.float64)
            bias = np.asarray(layer.bias, np.float64) if layer.use_bias else np.zeros(kernel.shape[-1])
            weights[layer.name] = kernel, bias
            previous = layer
        elif isinstance(layer, keras.layers.BatchNormalization):
            is_last_axis = layer.axis in (-1, len(input_shape) - 1)
            if previous is None or previous.activation is not keras.activations.linear or not is_last_axis:
                raise ValueError(
                    f"the layer {layer.name} (BatchNormalization) cannot be folded away: it has to follow a "
                    f"Dense or Conv2D layer without an activation directly, and to normalise the last axis."
                )
            weights[previous.name] = _fold(layer, *weights[previous.name])
        elif not isinstance(layer, DROPOUT):
            previous = None
    for name, arrays in weights.items():
        if not all(np.all(np.isfinite(array)) for array in arrays):
            raise ValueError(f"the weights of the layer {name} are not finite; train the model again.")
    return weights


def _fold(
    layer: keras.layers.BatchNormalization, kernel: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    factor = 1.0 / np.sqrt(np.asarray(layer.moving_variance, np.float64) + layer.epsilon)
    if layer.scale:
        factor *= np.asarray(layer.gamma, np.float64)
    bias = (bias - np.asarray(layer.moving_mean, np.float64)) * factor
    if layer.center:
        bias += np.asarray(layer.beta, np.float64)
    return kernel * factor, bias
