"""Small layers and models with random, non-trivial parameters, for the tests of this folder."""

import pickle
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from gpflow_deep import DeepGP, SVGPLayer
from gpflow_deep.functions.functions import FunctionDraws

#: The four shapes of a covariance: full_cov, full_output_cov.
COVARIANCE_SHAPES = [(False, False), (True, False), (False, True), (True, True)]


def random_q(
    rng: np.random.Generator, M: int, L: int, scale: float = 0.5, q_diag: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Random variational mean [M, L] and factors [L, M, M] (or deviations [M, L]) of the size of a prior's."""
    if q_diag:
        return scale * rng.standard_normal((M, L)), scale * rng.uniform(0.3, 1.0, (M, L))
    q_sqrt = 0.2 * np.tril(rng.standard_normal((L, M, M)), -1) + np.stack(
        [np.diag(rng.uniform(0.3, 1.0, M)) for _ in range(L)]
    )
    return scale * rng.standard_normal((M, L)), scale * q_sqrt


def spread_inputs(rng: np.random.Generator, M: int, D: int) -> np.ndarray:
    """M inputs in [-2, 2]^D that keep their distance, so that Kuu has a condition number below about 1e4."""
    points = [rng.uniform(-2, 2, D)]
    while len(points) < M:
        candidates = rng.uniform(-2, 2, (30, D))
        distances = np.min(np.linalg.norm(candidates[:, None] - np.array(points)[None], axis=-1), axis=1)
        points.append(candidates[np.argmax(distances)])
    return np.array(points)


def random_kernel(rng: np.random.Generator, D: int) -> gpflow.kernels.SquaredExponential:
    return gpflow.kernels.SquaredExponential(
        variance=rng.uniform(0.5, 1.5), lengthscales=rng.uniform(0.6, 1.2, D) * np.sqrt(D)
    )


def make_layer(
    rng: np.random.Generator, D: int, L: int, M: int = 6, *, q_scale: float = 0.5, **options: Any
) -> SVGPLayer:
    """A layer from D inputs to L latent GPs with random kernel, Z and q(u)."""
    q_mu, q_sqrt = random_q(rng, M, L, q_scale, options.get("q_diag", False))
    kernel = options.pop("kernel", None)
    Z = options.pop("Z", None)
    return SVGPLayer(
        random_kernel(rng, D) if kernel is None else kernel,
        spread_inputs(rng, M, D) if Z is None else Z,
        q_mu=q_mu,
        q_sqrt=q_sqrt,
        **options,
    )


def make_model(
    rng: np.random.Generator,
    widths: Sequence[int] = (2, 2, 1),
    likelihood: gpflow.likelihoods.Likelihood | None = None,
    *,
    M: int = 6,
    model: type[DeepGP] = DeepGP,
    layer_options: dict[str, Any] | None = None,
    **options: Any,
) -> DeepGP:
    """A model with layers from widths[i] to widths[i + 1] dimensions; the inner ones have identity or linear means."""
    layers = []
    for i, (D, P) in enumerate(pairwise(widths)):
        is_last = i == len(widths) - 2
        mean_function = None
        if not is_last:
            mean_function = gpflow.mean_functions.Linear(A=np.eye(D, P), b=np.zeros(P))
            gpflow.set_trainable(mean_function, False)
        layers.append(make_layer(rng, D, P, M, mean_function=mean_function, **(layer_options or {})))
    likelihood = gpflow.likelihoods.Gaussian(variance=0.1) if likelihood is None else likelihood
    return model(layers, likelihood, **options)


def make_data(rng: np.random.Generator, N: int = 12, D: int = 2, P: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [N, D] in [-2, 2] and targets [N, P] from a smooth function with noise."""
    X = rng.uniform(-2, 2, (N, D))
    slopes = rng.uniform(0.5, 1.5, (D, P))
    return X, np.sin(2 * X @ slopes) + 0.1 * rng.standard_normal((N, P))


def standard_noise(rng: np.random.Generator, model: DeepGP, S: int, N: int, last: bool = False) -> list[tf.Tensor]:
    """Explicit noise [S, N, L] for the inner layers, and for the last one, too."""
    layers = model.layers if last else model.layers[:-1]
    return [tf.constant(rng.standard_normal((S, N, layer.num_latent_gps))) for layer in layers]


def assert_functions_are_kept(drawn: FunctionDraws, X: np.ndarray, folder: Path) -> None:
    """The same values at X [N, 2] by a pickle, and by TensorFlow's export; slopes are those of finite differences."""
    values = drawn(X).numpy()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(drawn))(X), values)
    exported = tf.Module()
    exported.functions = drawn  # its parameters
    exported.values = tf.function(drawn, input_signature=[tf.TensorSpec([None, 2], tf.float64)], autograph=False)
    tf.saved_model.save(exported, str(folder / "exported"))
    alone = tf.saved_model.load(str(folder / "exported"))
    np.testing.assert_allclose(alone.values(X), values, rtol=1e-9)
    inputs, step = tf.Variable(X), np.array([1e-5, 0.0])
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(drawn(inputs)[1])
    differences = (drawn(X + step)[1] - drawn(X - step)[1])[:, 0] / 2e-5
    np.testing.assert_allclose(tape.gradient(total, inputs)[:, 0], differences, rtol=1e-6, atol=1e-8)
