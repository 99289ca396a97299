"""Computer experiments: where to run the simulator next, rows predicted by the others, simulators that feed another.

    predictor = DeepGPRegressor().fit(X, y).predictor_
    candidates = qmc.LatinHypercube(2).random(500)
    X_next = candidates[np.argmax(predictive_variance(predictor, candidates))]              # ALM
    X_next = candidates[np.argmax(variance_reduction(predictor, candidates, reference))]    # ALC
    X_next = candidates[np.argmax(expected_improvement(predictor, candidates, y.min()))]    # the smallest value
    values = link([first.sample_functions(64, seed=0), second.sample_functions(64, seed=1)])(X_new)

Everything is in the units of the data, and of the latent functions: without the noise of the likelihood. With several
targets criteria are the sums over them, each in units of its own standard deviation in the training rows.

References: MacKay (1992), ALM; Cohn (1996), ALC; Jones et al. (1998), expected improvement; Rasmussen and Williams
(2006), (5.12), rows left out; Sauer et al. (2023), sequential designs for deep GPs; Ming and Guillas (2021), links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from gpflow.likelihoods import Gaussian
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.special import logsumexp
from scipy.stats import norm

from .functions.functions import FunctionDraws
from .layers.global_inducing import GlobalInducingLayer
from .layers.svgp import SVGPLayer
from .train.predictor import Predictor

__all__ = [
    "LeftOut",
    "expected_improvement",
    "leave_one_out",
    "link",
    "predictive_variance",
    "variance_reduction",
]

Array = NDArray[np.float64]


def predictive_variance(predictor: Predictor, X: Array) -> Array:
    """Variance of the function at X [n, D], [n], in units of the variance of the targets: ALM."""
    inputs = _inputs(predictor, X)
    _, variance = predictor.model.predict_f(inputs)
    return np.asarray(variance, np.float64).sum(axis=1)


def variance_reduction(predictor: Predictor, X: Array, reference: Array) -> Array:
    """By how much one more run at X [n, D] lowers the mean variance of the function over the reference inputs: ALC.

    Of Gaussians, to which the mixture of a deep GP has the same moments: mean over r of cov(x, r)^2 / (var(x) + noise).
    For a single layer this is what a run would do, whatever its value, if hyperparameters stay.

    :param reference: inputs [m, D] over which the variance is averaged, such as a Latin hypercube.
    :return: [n], in units of the variance of the targets.
    """
    both = _inputs(predictor, np.concatenate([X, reference]))
    n = len(X)
    _, covariance = predictor.model.predict_f(both, full_cov=True)
    # cov(x, r)^2 / (var(x) + noise), the mean over the reference, summed over the targets.
    covariance = np.asarray(covariance, np.float64)  # [P, n + m, n + m]
    shared = np.square(covariance[:, :n, n:]).mean(axis=2)
    variances = np.diagonal(covariance[:, :n, :n], axis1=1, axis2=2)
    return np.asarray((shared / (variances + _noise(predictor))).sum(axis=0))


def expected_improvement(predictor: Predictor, X: Array, best: float, *, maximise: bool = False) -> Array:
    """E max(best - f(x), 0) at X [n, D], [n], in the units of the target: of each Gaussian of the mixture in closed
    form, and the mean of these.

    :param best: the lowest value so far.
    :param maximise: E max(f(x) - best, 0) for the highest value so far.
    :raises ValueError: if there are several targets.
    """
    inputs = _inputs(predictor, X)
    if len(predictor.target_names) > 1:
        raise ValueError(f"expected improvement is of one target, got {len(predictor.target_names)}.")
    means, variances = predictor.model.predict_components(inputs)
    weights = np.asarray(predictor.model.component_weights(), np.float64)
    scale = predictor.units.y.scale[0]
    offset = predictor.units.y.mean[0]
    sign = -1.0 if maximise else 1.0
    deviations = np.sqrt(np.maximum(np.asarray(variances, np.float64)[..., 0], 1e-300))  # [S, n]
    # Of each Gaussian: gain Phi(u) + deviation phi(u) with u = gain / deviation.
    gain = sign * ((best - offset) / scale - np.asarray(means, np.float64)[..., 0])
    u = gain / deviations
    return np.asarray(scale * (weights @ (gain * norm.cdf(u) + deviations * norm.pdf(u))))


class LeftOut(NamedTuple):
    """Of every row, given all others, in the units of the data.

    :ivar mean: [N, P].
    :ivar std: of the target, with the noise, [N, P].
    :ivar log_density: of its target, [N], nats.
    """

    mean: Array
    std: Array
    log_density: Array


def leave_one_out(predictor: Predictor, X: Array, Y: Array) -> LeftOut:
    """What a model says of each row when it has all others: of a single layer with Gaussian noise in closed form, of
    two layers with drawn inner outputs (`posterior="imputed"`) by weights of the draws.

    Hyperparameters stay those of all rows. The GP is exact, whatever inducing inputs the model has. Weights take back
    only a part of what a row did to the inner outputs of the others: of 12 rows with a jump standard deviations are in
    the middle those of draws without the row, of 9 half as large.

    :param X: the training rows, [N, D].
    :param Y: their targets, [N, P], or [N].
    :raises ValueError: if the model is of another kind, or X has not the rows at which inner outputs were drawn.
    """
    _check(predictor)
    model = predictor.model
    layer = model.layers[0]
    is_gaussian = type(model.likelihood) is Gaussian
    Y = np.asarray(Y, np.float64).reshape(len(X), -1)
    x, y = predictor.units.transform(X, Y)
    units = predictor.units.y
    # Two layers, by draws of the inner outputs.
    if model.is_sampled and len(model.layers) == 2 and isinstance(layer, GlobalInducingLayer) and is_gaussian:
        if layer.Z is None or layer.Z.shape != x.shape or not np.allclose(layer.Z, x):
            raise ValueError(f"inner outputs were drawn at the training rows, got {len(X)} others: give all of these.")
        mean, variance, log_density = _left_out_of_draws(predictor, x, y)
        log_density = log_density - units.log_volume
        return LeftOut(units.mean + mean * units.scale, np.sqrt(variance) * units.scale, log_density)
    # A single layer, in closed form.
    is_plain = len(model.layers) == 1 and type(layer) is SVGPLayer and is_gaussian
    if not is_plain or len({id(kernel) for kernel in layer.latent_kernels}) > 1:
        raise ValueError(
            "rows are left out in closed form by one SVGPLayer with one kernel and Gaussian noise, and by the draws of "
            "posterior='imputed', got another model; fit DeepGPRegressor(1, likelihood='gaussian'), or use "
            "sklearn.model_selection.cross_val_predict."
        )
    y = y - np.asarray(layer.mean_function(x), np.float64)
    # With K = k(X, X) + s I a left-out row has variance 1 / (K^-1)_nn and error (K^-1 y)_n / (K^-1)_nn.
    K = np.asarray(layer.latent_kernels[0](x), np.float64) + _noise(predictor) * np.eye(len(x))
    root = cholesky(K, lower=True)
    inverse = cho_solve((root, True), np.eye(len(x)))
    variance = 1 / np.diag(inverse)[:, None]
    residuals = (inverse @ y) * variance  # y_n less its mean by the others
    # In the units of the data.
    std = np.sqrt(variance) * units.scale
    log_density = norm.logpdf(residuals * units.scale, scale=std).sum(axis=1)
    return LeftOut(Y - residuals * units.scale, std, log_density)


def _left_out_of_draws(predictor: Predictor, x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Mean [N, P], variance [N, P] and log density [N] of standardised rows, by draws W of the inner outputs.

    The row's own w_n is drawn anew given those of the others, as it has seen y_n; these count by the weights

        1 / p(y_n | y_-n, W_-n),    p(y_n | y_-n, W_-n) = E p(y_n | y_-n, W_-n, w_n)

    (integrated importance sampling, Vehtari et al. 2016), which are cut at the root of their number times their mean.
    """
    model = predictor.model
    assert model.samples is not None  # of mypy: the caller has looked
    inner, last = model.layers
    values = model.samples.values[0].numpy()  # [K, N, D'], whitened
    K, N, D = values.shape
    # Given the other rows of W, w_n has the variance 1 / (K1^-1)_nn, and is by (K1^-1 F)_n times it off its mean.
    K1 = np.asarray(inner.kernel(x)) + inner.jitter * np.eye(N)
    inverse = np.linalg.inv(K1)
    spread = 1 / np.diag(inverse)
    noise = _noise(predictor)
    rng = np.random.default_rng(model.prediction_seed)
    S = -(-model.num_predict_samples // K)
    means = np.empty((K, S, N, y.shape[1]))
    variances = np.empty((K, S, N, 1))
    for k, F in enumerate(cholesky(K1, lower=True) @ values):
        # The exact GP of the targets at this W.
        W = np.asarray(inner.mean_function(x)) + F
        B = np.linalg.inv(np.asarray(last.kernel(W)) + (last.jitter + noise) * np.eye(N))
        # By the others: B_-n,-n - B_-n,n B_n,-n / B_nn is the inverse of their covariance.
        precise = np.diag(B)
        right = B @ y
        for s in range(S):
            # Another w_n of each row, and its covariances with all rows but its own.
            w = W - (inverse @ F) * spread[:, None] + np.sqrt(spread)[:, None] * rng.standard_normal((N, D))
            near = np.array(last.kernel(w, W))
            np.fill_diagonal(near, 0.0)
            weighted = near @ B
            # Mean and variance at w_n, by B and what row n has to do with them.
            own = np.diag(weighted)
            means[k, s] = near @ right - own[:, None] * y - (own / precise)[:, None] * (right - precise[:, None] * y)
            explained = np.sum(weighted * near, axis=1) - own**2 / precise
            variances[k, s, :, 0] = np.maximum(np.asarray(last.kernel(w, full_cov=False)) - explained, 0.0)
    variances += last.jitter + noise
    # Of each W: E p(y_n | ...) over its w_n, and its weight.
    logs = norm.logpdf(y, means, np.sqrt(variances)).sum(axis=3)  # [K, S, N]
    of_draws = logsumexp(logs, axis=1) - np.log(S)
    weights = np.exp(of_draws.min(axis=0) - of_draws)
    weights = np.minimum(weights, np.sqrt(K) * weights.mean(axis=0))
    weights /= weights.sum(axis=0)
    # Moments of the mixture of all draws.
    shares = (weights / S)[:, None, :, None]
    mean = np.sum(shares * means, axis=(0, 1))
    variance = np.sum(shares * (variances + np.square(means - mean)), axis=(0, 1))
    return mean, variance, logsumexp(of_draws, axis=0, b=weights)


def link(chain: Sequence[FunctionDraws | Callable[..., ArrayLike]]) -> Callable[[ArrayLike], Array]:
    """Functions through several emulators: draw s of the first feeds draw s of the second, and so on.

    The spread of the values says what all emulators together do not know.

    :param chain: of each emulator as many `Predictor.sample_functions`; other functions of [S, N, P] or [N, D] may
        stand between them, such as one that puts further inputs beside the outputs.
    :return: X [N, D] -> values [S, N, P] of the last one.
    :raises ValueError: if the chain is empty, or the numbers of draws differ.
    """
    # As many draws of each emulator; draw s of one feeds draw s of the next.
    counts = {draws.num_functions for draws in chain if isinstance(draws, FunctionDraws)}
    if len(counts) != 1:
        raise ValueError(f"a chain needs draws of emulators, equally many of each, got {sorted(counts)} draws.")

    def values(X: ArrayLike) -> Array:
        for step in chain:
            X = step(X)
        return np.asarray(X, np.float64)

    return values


def _check(predictor: Predictor) -> None:
    if not isinstance(predictor, Predictor):
        raise ValueError(f"designs take a Predictor, got {type(predictor).__name__}; give predictor_ of an estimator.")
    if predictor.task != "regression":
        raise ValueError(f"designs are for targets that are numbers, got a model of {predictor.task} labels.")


def _inputs(predictor: Predictor, X: Array) -> Array:
    _check(predictor)
    return np.asarray(predictor.units.x.transform(np.asarray(X, np.float64)))


def _noise(predictor: Predictor) -> float:
    """Variance of the noise of a run, in units of the variance of the targets."""
    likelihood = predictor.model.likelihood
    return float(np.asarray(likelihood.variance)) if type(likelihood) is Gaussian else 0.0
