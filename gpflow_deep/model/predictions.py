"""Predictions of a deep GP: what is read off the chain of layers, in slices of bounded memory, and mixed.

Given a draw of the inner layers the last one is Gaussian: what is predicted is a mixture of S Gaussians, Eq. (18) of
[1]. Its weights [S] sum to one: 1/S for draws, products of Gauss-Hermite weights for quadrature.

Draws are shared by all rows, so that what is predicted for a row does not depend on the others, on their order or on
how they are sliced. Predictions that are joint over rows (`full_cov`) and draws of functions are Monte Carlo.

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tensorflow as tf
from check_shapes import check_shapes
from gpflow.base import MeanAndVariance, TensorType
from gpflow.likelihoods import Likelihood

from ..layers.chunking import flat_rows, length_of, map_slices, over_batch, swap_two
from ..layers.protocol import Factors, Layer
from ..posteriors.ensemble import Ensemble, per_member
from . import likelihoods
from .propagation import (
    Propagation,
    Step,
    checked_inputs,
    checked_points,
    draws_per_slice,
    evaluate,
    num_same_in_all_draws,
    rows_per_slice,
)
from .quadrature import Integrator, MonteCarlo, Sobol

__all__ = ["Predictions", "joint_moments", "log_density", "moments"]


@check_shapes("weights: [S]", "means: [S, N, P]", "return[0]: [N, P]")
def moments(weights: tf.Tensor, means: tf.Tensor, covs: tf.Tensor, *, full_output_cov: bool = False) -> MeanAndVariance:
    """Mean [N, P] and variance [N, P], or covariance [N, P, P] of the outputs: the mean of the components' covariances
    plus the covariance of their means.

    :param covs: of the components: variances [S, N, P], or with `full_output_cov` covariances [S, N, P, P].
    """
    # The law of total covariance: within the components, and between their means.
    mean = tf.tensordot(weights, means, axes=1)
    centred = means - mean
    if full_output_cov:
        return mean, tf.tensordot(weights, covs, axes=1) + tf.einsum("s,snp,snq->npq", weights, centred, centred)
    return mean, tf.tensordot(weights, covs + tf.square(centred), axes=1)


@check_shapes("means: [S, N, P]", "return[0]: [N, P]")
def joint_moments(means: tf.Tensor, sum_of_covs: tf.Tensor, *, full_output_cov: bool) -> MeanAndVariance:
    """Mean and covariance between N points of equally weighted components, of whose covariances the sum is known.

    :param sum_of_covs: [P, N, N], or with `full_output_cov` [N, P, N, P].
    """
    mean = tf.reduce_mean(means, axis=0)
    centred = means - mean
    equation = "snp,smq->npmq" if full_output_cov else "snp,smp->pnm"
    return mean, (sum_of_covs + tf.einsum(equation, centred, centred)) / tf.cast(tf.shape(means)[0], means.dtype)


@check_shapes("weights: [S]", "log_densities: [S, N]", "return: [N]  # nats")
def log_density(weights: tf.Tensor, log_densities: tf.Tensor) -> tf.Tensor:
    """Log of the mean density, from the logs of the components' densities."""
    # Densities of rows far off underflow, their logs do not.
    return tf.reduce_logsumexp(tf.math.log(weights)[:, None] + log_densities, axis=0)


Noise = list[tf.Tensor]
Results = Sequence[tf.Tensor]


@dataclass(frozen=True, eq=False)
class Predictions:
    """All predictions with given factors and given seeds. N rows, D inputs, S components, P latent functions.

    :param layers: of the model.
    :param factors: of each layer.
    :param likelihood: of the model.
    :param integrator: supplies the draws of the inner layers.
    :param num_samples: S, where the integrator lets choose.
    :param seed: int32 [2], of the draws.
    :param likelihood_seed: int32 [2], of likelihoods that draw themselves.
    """

    layers: Sequence[Layer]
    factors: Factors
    likelihood: Likelihood
    integrator: Integrator
    num_samples: int
    seed: tf.Tensor
    likelihood_seed: tf.Tensor

    def f(self, X: TensorType, *, full_cov: bool, full_output_cov: bool) -> MeanAndVariance:
        """Moments of the latent functions at X [batch..., N, D], in the shapes of `DeepGP.predict_f`."""
        X = self._inputs(X)
        if full_cov:
            # Covariances between rows need all of them at once; all else is predicted in slices of rows.
            return over_batch(lambda points: self._joint_f(points, full_output_cov), X, num_results=2)

        def finish(weights: tf.Tensor, means: tf.Tensor, covs: tf.Tensor, X: tf.Tensor) -> Results:
            return moments(weights, means, covs, full_output_cov=full_output_cov)

        mean, cov = self._mixture(finish, (X,), 2, full_output_cov=full_output_cov)
        return mean, cov

    def y(self, X: TensorType) -> MeanAndVariance:
        """Mean and variance of observations at X [batch..., N, D]: [batch..., N, Q] each."""

        def finish(weights: tf.Tensor, means: tf.Tensor, covs: tf.Tensor, X: tf.Tensor) -> Results:
            # The likelihood is not linear in f: it is applied to each component, and not to their mixture.
            return moments(
                weights, *likelihoods.predict_mean_and_var(self.likelihood, X, means, covs, self.likelihood_seed)
            )

        mean, var = self._mixture(finish, (self._inputs(X),), 2)
        return mean, var

    def log_density(self, X: TensorType, Y: TensorType) -> tf.Tensor:
        """log p(y_n), [batch..., N], nats, at X [batch..., N, D] and Y [batch..., N, Q]."""

        def finish(weights: tf.Tensor, means: tf.Tensor, covs: tf.Tensor, X: tf.Tensor, Y: tf.Tensor) -> Results:
            # Eq. (18): the log of the mean density, not the mean of logs.
            terms = likelihoods.predict_log_density(self.likelihood, X, means, covs, Y, self.likelihood_seed)  # [S, N]
            return [log_density(weights, terms)]

        return self._mixture(finish, (self._inputs(X), tf.convert_to_tensor(Y)), 1)[0]

    def components(self, X: TensorType, *, full_cov: bool, full_output_cov: bool) -> MeanAndVariance:
        """Means and covariances of the components at X [N, D], in the shapes of `DeepGP.predict_components`."""
        X = self._inputs(X)

        def read(steps: list[Step]) -> Results:
            return steps[-1].outputs(full_cov=full_cov, full_output_cov=full_output_cov)

        if full_cov:
            means, covs = self.jointly(read, X, self._dims[:-1], self._num_joint)
        else:
            S, noise = self._shared_noise(X)
            means, covs = self._by_rows(read, (X,), noise, S, axis=1)
        return means, covs

    def all_layers(self, X: TensorType, *, full_cov: bool) -> Propagation:
        """Draws and moments of every layer at X [N, D]."""
        X = self._inputs(X)
        L = len(self.layers)
        S = self.num_samples

        def read(steps: list[Step]) -> Results:
            return [part for parts in Propagation.of(steps, full_cov=full_cov) for part in parts]

        # Samples, means and covariances of the L layers, one after the other.
        if full_cov:
            parts = self.jointly(read, X, self._dims, S, num_results=3 * L)
        else:
            noise = self._draws(Sobol(), self._dims, S, 1, self.seed, X.dtype)
            parts = self._by_rows(read, (X,), lambda start, stop: noise, S, num_results=3 * L, axis=1)
        # Moments of the first layers do not differ between draws, and every slice of the draws repeats them.
        num_fixed = 0 if isinstance(self.factors, Ensemble) else num_same_in_all_draws(self.layers)
        distinct = [part[:1] if i % L < num_fixed else part for i, part in enumerate(parts[L:])]
        return Propagation(tuple(parts[:L]), tuple(distinct[:L]), tuple(distinct[L:]))

    def samples(self, X: TensorType, *, full_cov: bool) -> tf.Tensor:
        """Draws of the latent functions at X [batch..., N, D]: [batch..., S, N, P]."""
        X = self._inputs(X)
        S = self.num_samples

        def read(steps: list[Step]) -> Results:
            return [steps[-1].sample]

        if full_cov:
            return over_batch(lambda points: self.jointly(read, points, self._dims, S, 1), X, num_results=1)[0]

        def noise(start: tf.Tensor, stop: tf.Tensor) -> Noise:
            # Slices have noise of their own, by the number of the first row.
            seed = tf.random.fold_in(self.seed, start)
            return self._draws(MonteCarlo(), self._dims, S, stop - start, seed, X.dtype)

        # Rows of all batches together, and the axis of draws in its place again.
        flat = self._by_rows(read, (flat_rows(X)[0],), noise, S, num_results=1, axis=1)[0]  # [S, rows, P]
        shape = tf.shape(X)
        P = self.layers[-1].output_dim
        batches = swap_two(tf.reshape(flat, [S, -1, shape[-2], P]))
        return tf.reshape(batches, tf.concat([shape[:-2], [S, shape[-2], P]], axis=0))

    # Private.

    def _inputs(self, X: TensorType) -> tf.Tensor:
        return checked_inputs(X, self.layers[0])

    @property
    def _dims(self) -> list[int]:
        return [layer.num_latent_gps for layer in self.layers]

    @property
    def _integrator(self) -> Integrator:
        """Over the inner layers and the members of an ensemble."""
        return self._per_member(self.integrator)

    @property
    def _num_joint(self) -> int:
        """Joint draws over many points are Monte Carlo for every model: nodes would grow with N."""
        return self._per_member(MonteCarlo()).num_components(self._dims[:-1], self.num_samples)

    def _per_member(self, integrator: Integrator) -> Integrator:
        return per_member(integrator, self.factors.size) if isinstance(self.factors, Ensemble) else integrator

    def _draws(
        self,
        integrator: Integrator,
        dims: Sequence[int],
        num_draws: int,
        num_points: tf.Tensor | int,
        seed: tf.Tensor,
        dtype: tf.DType,
        *,
        joint: bool = False,
    ) -> Noise:
        """Noise of the layers for draws, which are joint over the rows or not."""
        return integrator.noise(dims, num_draws, num_points, seed, dtype)

    def _shared_noise(self, X: tf.Tensor) -> tuple[int, Callable[[tf.Tensor, tf.Tensor], Noise]]:
        """The number of components for rows X [N, D], and the noise of those from `start` to `stop`."""
        integrator = self._integrator
        S = integrator.num_components(self._dims[:-1], self.num_samples)
        noise = integrator.noise(self._dims[:-1], S, length_of(X), self.seed, X.dtype)
        # Noise that all rows share stays whole; other noise is cut as the rows are.
        return S, lambda start, stop: [eps if eps.shape[1] == 1 else eps[:, start:stop] for eps in noise]

    def _mixture(
        self,
        finish: Callable[..., Results],
        rows: tuple[tf.Tensor, ...],
        num_results: int,
        *,
        full_output_cov: bool = False,
    ) -> list[tf.Tensor]:
        """`finish(weights, means, covs, *rows)` of the components at rows [batch..., N, .]: [batch..., N, ...]."""
        # Batches go through the layers as rows like others, and are what they were again in the end.
        flat, restores = zip(*map(flat_rows, rows), strict=True)
        S, noise = self._shared_noise(flat[0])
        weights = tf.exp(self._integrator.log_weights(self._dims[:-1], S, flat[0].dtype))

        def read(steps: list[Step]) -> Results:
            return steps[-1].outputs(full_output_cov=full_output_cov)

        finish_weighted = functools.partial(finish, weights)
        return [restores[0](part) for part in self._by_rows(read, flat, noise, S, num_results, finish=finish_weighted)]

    def _by_rows(
        self,
        read: Callable[[list[Step]], Results],
        rows: tuple[tf.Tensor, ...],
        noise: Callable[[tf.Tensor, tf.Tensor], Noise],
        num_draws: int,
        num_results: int = 2,
        *,
        finish: Callable[..., Results] | None = None,
        axis: int = 0,
    ) -> tuple[tf.Tensor, ...]:
        """`read(steps)`, or `finish(*read(steps), *rows)`, in slices of rows [N, columns] that fit with all draws."""
        layers = self.layers
        dtype = rows[0].dtype
        rows = (checked_points(rows[0], layers[0]), *rows[1:])
        num_read = num_results if finish is None else 2  # means and covariances, of which `finish` makes the results

        def of_slice(start: tf.Tensor, stop: tf.Tensor) -> Results:
            parts = [part[start:stop] for part in rows]
            eps = noise(start, stop)
            # Draws are cut, too, where a single row is too large with all of them.
            size = rows_per_slice(layers)
            outputs = evaluate(read, layers, self.factors, parts[0], eps, size=size, num_results=num_read)
            return outputs if finish is None else finish(*outputs, *parts)

        size = rows_per_slice(layers, num_draws)
        return map_slices(of_slice, length_of(rows[0]), size, [dtype] * num_results, axis=axis)

    def jointly(
        self,
        read: Callable[[list[Step]], Results],
        X: tf.Tensor,
        dims: Sequence[int],
        num_draws: int,
        num_results: int = 2,
        num_sums: int = 0,
    ) -> tuple[tf.Tensor, ...]:
        """`read(steps)` of draws that are joint over the rows of X [N, D]."""
        noise = self._draws(MonteCarlo(), dims, num_draws, length_of(X), self.seed, X.dtype, joint=True)
        return evaluate(
            read,
            self.layers,
            self.factors,
            checked_points(X, self.layers[0]),
            noise,
            size=draws_per_slice(self.layers, X),
            full_cov=True,
            num_results=num_results,
            num_sums=num_sums,
        )

    def _joint_f(self, X: tf.Tensor, full_output_cov: bool) -> MeanAndVariance:
        def read(steps: list[Step]) -> Results:
            means, covs = steps[-1].outputs(full_cov=True, full_output_cov=full_output_cov)
            # Of the S covariances [N, N] only the sum is kept.
            return means, tf.reduce_sum(covs, axis=0)

        means, total = self.jointly(read, X, self._dims[:-1], self._num_joint, num_results=2, num_sums=1)
        return joint_moments(means, total, full_output_cov=full_output_cov)
