"""What a network of dense layers computes and how wrong it is, in plain NumPy."""

from collections.abc import Sequence

import keras
import numpy as np

import compression as bc


def dense_outputs(weights: Sequence[np.ndarray], x: np.ndarray) -> np.ndarray:
    """Logits of a network of dense layers with ReLU between them, from kernel, bias, kernel, bias, ..."""
    for i in range(0, len(weights), 2):
        x = x.astype(np.float64) @ weights[i].astype(np.float64) + weights[i + 1].astype(np.float64)
        if i + 2 < len(weights):
            x = np.maximum(x, 0.0)
    return x


def percent_wrong(outputs: np.ndarray, labels: np.ndarray) -> float:
    """Percent of the rows whose largest output is not that of the label."""
    return 100.0 * sum(int(np.argmax(row) != label) for row, label in zip(outputs, labels, strict=True)) / len(labels)


def log_softmax(outputs: np.ndarray) -> np.ndarray:
    return np.array([row - row.max() - np.log(np.sum(np.exp(row - row.max()))) for row in outputs])


def network_outputs(model: keras.Model, x: np.ndarray) -> np.ndarray:
    """Logits of a plain network of dense layers with ReLU between them, and selections of inputs."""
    *hidden, last = [layer for layer in model.layers if isinstance(layer, keras.layers.Dense)]
    for layer in model.layers:
        if isinstance(layer, bc.SelectInputs):
            x = x[:, layer.indices]
        elif layer in hidden:
            x = np.maximum(dense_outputs(layer.get_weights(), x), 0.0)
    return dense_outputs(last.get_weights(), x)


def masked_outputs(model: keras.Model, x: np.ndarray, thresholds: dict[str, float]) -> np.ndarray:
    """Logits of a network of DenseGNJ layers by their means, E[z_i] mu_ij, without the inputs i whose score log alpha_i
    is at or above the threshold of the layer."""
    weights = []
    for layer in bc.bayesian_layers(model):
        is_kept = np.asarray(layer.prune_scores()) < thresholds[layer.name]
        scale = np.asarray(layer.scale_moments()[0]) * is_kept * np.asarray(layer.mask)
        weights += [scale[:, None] * layer.kernel_mean.numpy(), layer.bias.numpy()]
    return dense_outputs(weights, x)


def entropy_bits(counts: Sequence[int] | np.ndarray) -> float:
    """Entropy of a symbol in bits, for symbols that occur `counts` times."""
    n = np.asarray(counts, np.float64)
    p = n[n > 0] / n.sum()
    return float(-np.sum(p * np.log2(p)))
