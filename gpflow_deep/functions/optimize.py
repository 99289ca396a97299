"""Bayesian optimisation by Thompson sampling: where to look next is where functions drawn from the model are largest.

for _ in range(10):
    model = ...  # trained on X, Y
    new = thompson(model, [(0.0, 1.0)] * 6, batch=4)  # four points to evaluate at the same time
    X, Y = np.concatenate([X, new]), np.concatenate([Y, objective(new)])
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.stats import qmc

__all__ = ["thompson"]


def thompson(
    model: object,
    bounds: Sequence[tuple[float, float]] | ArrayLike,
    batch: int = 1,
    *,
    maximize: bool = True,
    seed: int | None = None,
    num_candidates: int = 2048,
    num_starts: int = 5,
    max_iter: int = 100,
) -> NDArray[np.float64]:
    """The maximisers of functions drawn from a model, one function for each point: [batch, D].

    Each function is evaluated at scrambled Sobol points; gradient ascent (L-BFGS-B) goes up from the best of them.

    :param model: a `DeepGP`, its posterior, a `Predictor` or a fitted estimator, of one output, in units of its inputs.
    :param bounds: lowest and highest value of each input, [D, 2].
    :param batch: number of functions, and of points.
    :param maximize: False for minima.
    :param seed: of all draws, fresh if None.
    :param num_candidates: Sobol points.
    :param num_starts: of them, for ascent of each function.
    :param max_iter: the most steps of ascent, all together.
    :raises ValueError: naming what is wrong; and as `DeepGP.sample_functions`.
    :raises TypeError: for other models.
    """
    if not hasattr(model := getattr(model, "predictor_", model), "sample_functions"):
        raise TypeError(f"model must be a DeepGP, Predictor or fitted estimator, got {type(model).__name__}; fit it.")
    low, width = _box(bounds)
    for name, count in {"batch": batch, "num_candidates": num_candidates, "num_starts": num_starts}.items():
        if count < 1:
            raise ValueError(f"{name} must be at least 1, got {count}.")
    functions = model.sample_functions(batch, seed=seed)
    if functions.output_dim != 1:
        raise ValueError(f"the model must have one output to optimise, got {functions.output_dim}.")
    if functions.input_dim not in (None, len(low)):
        raise ValueError(f"bounds must be a pair for each of the {functions.input_dim} inputs, got {len(low)} pairs.")
    sign = 1.0 if maximize else -1.0
    dtype = functions.dtype

    def heights(points: tf.Tensor) -> tf.Tensor:  # [N, D] or [batch, N, D] in the unit cube -> [batch, N]
        return sign * functions(tf.constant(low, dtype) + tf.constant(width, dtype) * points)[..., 0]

    # Sobol points, and the best of them for each function to start from.
    sobol = qmc.Sobol(len(low), seed=np.random.default_rng(seed))
    points = sobol.random_base2((num_candidates - 1).bit_length())[:num_candidates]
    candidates = heights(tf.constant(points, dtype)).numpy()
    starts = points[np.argsort(-candidates, axis=1)[:, :num_starts]]  # [batch, starts, D]
    scale = max(float(candidates.std()), np.finfo(np.float64).tiny)

    def descent(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        positions = tf.Variable(flat.reshape(starts.shape), dtype=dtype)
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(heights(positions)) / scale
        return -float(total), -tape.gradient(total, positions).numpy().astype(np.float64).ravel()

    # Ascent of all starts of all functions together, as their sum.
    box = [(0.0, 1.0)] * starts.size
    steps = {"maxiter": max_iter}
    maximisers = minimize(descent, starts.ravel(), jac=True, method="L-BFGS-B", bounds=box, options=steps).x
    # The best end or start of each: the sum has risen, but not every summand.
    ends = np.concatenate([maximisers.reshape(starts.shape), starts], axis=1)
    return np.asarray(low + width * ends[range(batch), np.argmax(heights(tf.constant(ends, dtype)), axis=1)])


def _box(bounds: object) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower limits and widths, [D]."""
    box = np.asarray(bounds, np.float64)
    if box.ndim != 2 or box.shape[1] != 2 or not np.isfinite(box).all() or not np.all(box[:, 0] < box[:, 1]):
        raise ValueError(f"bounds must be finite pairs (lowest, highest) for each input, got {bounds}.")
    return box[:, 0], box[:, 1] - box[:, 0]
