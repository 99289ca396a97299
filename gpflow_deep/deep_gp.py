"""Deep Gaussian processes with doubly stochastic variational inference, as GPflow models.

    y_n ~ p(y | f^L(f^{L-1}(... f^1(x_n))))

Each layer is an `SVGPLayer`. The marginals of a layer at a point depend on the previous layer at that point only, so a
draw through all layers costs N times as much as one point (Sec. 3.1 of [1]), and the bound is an average over draws and
over minibatches (Sec. 3.2). A model with one layer equals `gpflow.models.SVGP`.

Shapes: N points, S mixture components (draws of the inner layers), P outputs of the last layer. Given a draw of
the inner layers the last layer is Gaussian; every prediction is that of the mixture of the S Gaussians, Eq. (18).

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.kernels import Kernel
from gpflow.likelihoods import Likelihood, SwitchedLikelihood
from gpflow.mean_functions import MeanFunction
from gpflow.models import ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType
from tensorflow.python.data.ops.iterator_ops import OwnedIterator

from . import likelihoods
from .chunking import map_slices, sum_slices
from .layers import CachedFactors, LayerFactors, LayerMoments, SVGPLayer
from .posterior import DeepGPPosterior
from .propagation import Factors, Propagation
from .quadrature import GaussHermite, Integrator, MonteCarlo

__all__ = ["DeepGP", "DeepGPQuad"]

#: What one chunk of a prediction may hold, in bytes per temporary array of all layers' [M, points] intermediates.
CHUNK_BYTES = 48 * 2**20


class _Chunk(NamedTuple):
    """What belongs to some rows of a prediction besides the rows: see `DeepGP._map_points`."""

    noise: list[tf.Tensor]
    weights: tf.Tensor
    seed: tf.Tensor
    first: LayerMoments


class DeepGP(GPModel, ExternalDataTrainingLossMixin):
    """Deep GP with layers f^1, ..., f^L and a GPflow likelihood for the outputs of the last one.

    :param layers: the layers, first one first; the outputs of each are the inputs of the next.
    :param likelihood: any GPflow likelihood whose latent dimension is the width of the last layer.
    :param num_data: number N of training points, which scales the minibatch likelihood; None for no scaling.
    :param num_samples: number S of draws per point in the bound.
    :param num_predict_samples: number S of components in predictions.
    :param prediction_seed: predictions are deterministic functions of the parameters, the inputs and this seed.
    :param integrator: averages over the inner layers; Monte Carlo by default.
    :raises ValueError: if the layers do not fit one another or the likelihood.
    """

    layers: list[SVGPLayer]
    likelihood: Likelihood

    def __init__(
        self,
        layers: Sequence[SVGPLayer],
        likelihood: Likelihood,
        *,
        num_data: int | None = None,
        num_samples: int = 1,
        num_predict_samples: int = 100,
        prediction_seed: int = 0,
        integrator: Integrator | None = None,
    ) -> None:
        layers = list(layers)
        _check_layers(layers, likelihood)
        for name, value in (("num_samples", num_samples), ("num_predict_samples", num_predict_samples)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        self.layers = layers
        last = layers[-1]
        super().__init__(last.kernel, likelihood, last.mean_function, last.num_latent_gps)
        for number, layer in enumerate(layers, start=1):
            layer.label = f"layer {number} of {len(layers)}"
        self.num_data = num_data
        self.num_samples = num_samples
        self.num_predict_samples = num_predict_samples
        self.prediction_seed = prediction_seed
        self.integrator: Integrator = MonteCarlo() if integrator is None else integrator

    # What `GPModel` calls the model's kernel and mean function are the last layer's; they have no second home.

    @property
    def kernel(self) -> Kernel:
        """Kernel of the last layer."""
        return self.layers[-1].kernel

    @kernel.setter
    def kernel(self, kernel: Kernel) -> None:
        self.layers[-1].kernel = kernel

    @property
    def mean_function(self) -> MeanFunction:
        """Mean function of the last layer."""
        return self.layers[-1].mean_function

    @mean_function.setter
    def mean_function(self, mean_function: MeanFunction) -> None:
        self.layers[-1].mean_function = mean_function

    # The model.

    def factors(self) -> tuple[LayerFactors, ...]:
        """Cholesky factors of every layer. Compute once and hand to the methods below to save time."""
        return tuple(layer.factors() for layer in self.layers)

    def cached_factors(self, *, dtype: tf.DType | None = None) -> tuple[CachedFactors, ...]:
        """What predictions need of every layer, so that they consist of products; `posterior` keeps it."""
        return tuple(layer.cache(dtype=dtype) for layer in self.layers)

    def propagate(
        self,
        X: TensorType,
        noise: Sequence[tf.Tensor],
        *,
        full_cov: bool = False,
        factors: Factors | None = None,
    ) -> Propagation:
        """Push X through the layers with the given noise: Eq. (15).

        :param X: inputs, [N, D].
        :param noise: standard-normal draws (or quadrature nodes, or zeros for a mean pass) for each inner layer, and
            for the last layer too if draws of its outputs are wanted: [S, N, L] or [S, 1, L], L the number of the
            layer's latent GPs.
        :param full_cov: joint draws and covariances over the N points.
        :raises ValueError: if the number of noise arrays is neither that of the layers nor one less.
        """
        X = self._inputs(X)
        if len(noise) not in (len(self.layers) - 1, len(self.layers)):
            raise ValueError(
                f"noise must have one array for each of the {len(self.layers) - 1} inner layers and may have one for "
                f"the last layer, got {len(noise)} arrays."
            )
        factors = self.factors() if factors is None else factors
        samples, means, covs = [], [], []
        F = X
        for i, (layer, layer_factors) in enumerate(zip(self.layers, factors, strict=True)):
            moments = layer.latent_moments(F, layer_factors, full_cov=full_cov)
            mean, cov = layer.outputs(F, moments, full_cov=full_cov)
            means.append(mean[None] if i == 0 else mean)
            covs.append(cov[None] if i == 0 else cov)
            if i < len(noise):
                F = layer.sample(F, moments, tf.cast(noise[i], X.dtype), full_cov=full_cov)
                samples.append(F)
        return Propagation(tuple(samples), tuple(means), tuple(covs))

    # The objective.

    @check_shapes("return: []  # nats")
    def prior_kl(self, factors: Sequence[LayerFactors] | None = None) -> tf.Tensor:
        """KL[q || p] of the inducing outputs of all layers, in nats: the last term of Eq. (17)."""
        factors = self.factors() if factors is None else factors
        return tf.add_n([layer.prior_kl(part) for layer, part in zip(self.layers, factors, strict=True)])

    # Type-ignore: GPflow's models narrow the signature in the same way.
    @inherit_check_shapes
    def maximum_log_likelihood_objective(  # type: ignore[override]
        self, data: RegressionData, *, seed: tf.Tensor | int | None = None
    ) -> tf.Tensor:
        """`elbo(data, seed=seed)`."""
        return self.elbo(data, seed=seed)

    @check_shapes("data[0]: [N, D]", "data[1]: [N, Q]", "return: []  # nats, of the whole data set")
    def elbo(
        self,
        data: RegressionData,
        *,
        seed: tf.Tensor | int | None = None,
        noise: Sequence[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """Unbiased estimate of the evidence lower bound, Eq. (17), in nats and for all `num_data` points.

        :param data: a minibatch (X, Y).
        :param seed: fixes the draws of the inner layers; None for fresh draws from TensorFlow's global generator.
        :param noise: the draws themselves, as in `propagate`, in place of those from `seed`; equally weighted.
        """
        X, Y = data
        X = self._inputs(X)
        seed = _fresh_seed() if seed is None else _as_seed(seed)
        factors = self.factors()
        dims = self._inner_dims
        if noise is None:
            S = self.integrator.num_components(dims, self.num_samples)
            noise = self.integrator.noise(dims, 0, S, tf.shape(X)[0], seed, X.dtype)
            weights = tf.exp(self.integrator.log_weights(dims, S, X.dtype))
        else:
            weights = None
        f_mean, f_var = self._components(X, noise, factors)
        expectations = likelihoods.variational_expectations(
            self.likelihood, X, f_mean, f_var, Y, self._likelihood_seed(seed)
        )  # [S, N]
        if weights is None:
            per_point = tf.reduce_mean(expectations, axis=0)
        else:
            per_point = tf.linalg.matvec(expectations, weights, transpose_a=True)
        kl = self.prior_kl(factors)
        scale = tf.ones([], kl.dtype)
        if self.num_data is not None:
            scale = tf.cast(self.num_data, kl.dtype) / tf.cast(tf.shape(X)[0], kl.dtype)
        return tf.reduce_sum(per_point) * scale - kl

    @check_shapes("data[0]: [N, D]", "data[1]: [N, Q]", "return: []")
    def training_loss(self, data: RegressionData, *, seed: tf.Tensor | int | None = None) -> tf.Tensor:
        """Minus the bound and minus the log density of the parameters' priors, in nats.

        :param seed: fixes the draws, which makes the loss a deterministic function of the parameters.
        """
        return self._training_loss(data, seed=seed)

    def training_loss_closure(
        self,
        data: RegressionData | OwnedIterator,
        *,
        compile: bool = True,
        seed: tf.Tensor | int | None = None,
    ) -> Callable[[], tf.Tensor]:
        """The loss as a function of nothing, as GPflow's and Keras' optimisers take it.

        :param data: a pair (X, Y), or an iterator of a `tf.data.Dataset` of such pairs.
        :param compile: wrap the loss in `tf.function`.
        :param seed: give a seed with `gpflow.optimizers.Scipy`, whose line searches need a deterministic loss; with
            None, every evaluation has fresh draws, as stochastic optimisers want.
        """
        if isinstance(data, OwnedIterator):

            def of_batch(batch: RegressionData) -> tf.Tensor:
                return self.training_loss(batch, seed=seed)

            compiled = tf.function(of_batch, input_signature=[data.element_spec], autograph=False)
            loss = compiled if compile else of_batch
            return lambda: loss(next(data))

        def closure() -> tf.Tensor:
            return self.training_loss(data, seed=seed)

        return tf.function(closure, autograph=False) if compile else closure

    # Prediction.

    @inherit_check_shapes
    def predict_f(
        self,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: tf.Tensor | int | None = None,
        factors: Factors | None = None,
    ) -> MeanAndVariance:
        """Mean and covariance of the mixture of S Gaussians that approximates q(f(Xnew)), Eq. (18).

        The covariance is the mean of the components' covariances plus the covariance of their means. With `full_cov`,
        the inner layers are drawn jointly over the N points.

        :param num_samples: number S of components; `num_predict_samples` if None.
        :param seed: of the draws; `prediction_seed` if None.
        :param factors: as from `cached_factors()`; computed if None.
        """
        Xnew = self._inputs(Xnew)
        factors = self.cached_factors() if factors is None else factors
        seed = self._prediction_seed(seed)
        if full_cov:
            return _over_batch(
                lambda X: self._joint_mixture(X, full_output_cov, num_samples, seed, factors), Xnew, num_results=2
            )

        def mixture(X: tf.Tensor, chunk: _Chunk) -> MeanAndVariance:
            means, covs = self._components(X, chunk.noise, factors, False, full_output_cov, chunk.first)
            return _mixture_moments(means, covs, chunk.weights, full_output_cov)

        X, restore = _flat_rows(Xnew)
        return tuple(map(restore, self._map_points(mixture, (X,), factors, num_samples, seed, num_results=2)))

    @inherit_check_shapes
    def predict_y(
        self,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: tf.Tensor | int | None = None,
        factors: Factors | None = None,
    ) -> MeanAndVariance:
        """Mean and variance of new observations: the likelihood is applied to each component, then they are mixed.

        Further arguments as in `predict_f`.

        :raises NotImplementedError: with `full_cov` or `full_output_cov`, as in GPflow.
        """
        _refuse_covariances("predict_y", full_cov, full_output_cov)
        Xnew = self._inputs(Xnew)
        factors = self.cached_factors() if factors is None else factors

        def mixture(X: tf.Tensor, chunk: _Chunk) -> MeanAndVariance:
            f_mean, f_var = self._components(X, chunk.noise, factors, first=chunk.first)
            means, variances = likelihoods.predict_mean_and_var(self.likelihood, X, f_mean, f_var, chunk.seed)
            return _mixture_moments(means, variances, chunk.weights, full_output_cov=False)

        X, restore = _flat_rows(Xnew)
        results = self._map_points(mixture, (X,), factors, num_samples, self._prediction_seed(seed), num_results=2)
        return tuple(map(restore, results))

    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, Q]", "return: [batch..., N]  # nats")
    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: tf.Tensor | int | None = None,
        factors: Factors | None = None,
    ) -> tf.Tensor:
        """log p(y_n) of each held-out point in nats: the log of the *mean* density of the S components.

        Further arguments as in `predict_f`.

        :raises NotImplementedError: with `full_cov` or `full_output_cov`, as in GPflow.
        """
        _refuse_covariances("predict_log_density", full_cov, full_output_cov)
        Xnew = self._inputs(data[0])
        Ynew = tf.convert_to_tensor(data[1])
        factors = self.cached_factors() if factors is None else factors

        def density(X: tf.Tensor, Y: tf.Tensor, chunk: _Chunk) -> tuple[tf.Tensor]:
            f_mean, f_var = self._components(X, chunk.noise, factors, first=chunk.first)
            log_densities = likelihoods.predict_log_density(self.likelihood, X, f_mean, f_var, Y, chunk.seed)  # [S, N]
            return (tf.reduce_logsumexp(tf.math.log(chunk.weights)[:, None] + log_densities, axis=0)[:, None],)

        X, restore = _flat_rows(Xnew)
        Y, _ = _flat_rows(Ynew)
        (result,) = self._map_points(density, (X, Y), factors, num_samples, self._prediction_seed(seed), num_results=1)
        return restore(result)[..., 0]

    @inherit_check_shapes
    def predict_f_samples(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
        *,
        seed: tf.Tensor | int | None = None,
        factors: Factors | None = None,
    ) -> tf.Tensor:
        """Draws of f(Xnew) through all layers: [S, N, P], or [N, P] if `num_samples` is None.

        :param full_cov: True for draws of functions, joint over the N points in every layer; False for independent
            draws at every point, which is much cheaper.
        :param full_output_cov: no effect: a draw always has the right covariance between outputs.
        :param seed: of the draws; None for fresh ones from TensorFlow's global generator.
        """
        Xnew = self._inputs(Xnew)
        S = 1 if num_samples is None else self._asked(num_samples)
        seed = _fresh_seed() if seed is None else _as_seed(seed)
        factors = self.cached_factors() if factors is None else factors
        dims = [layer.num_latent_gps for layer in self.layers]
        if full_cov:
            samples = _over_batch(lambda X: self._joint_draws(X, S, dims, seed, factors), Xnew, num_results=1)[0]
        else:

            def draw(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor]:
                rows, chunk_seed = X[start:stop], tf.random.fold_in(seed, index)
                noise = MonteCarlo().noise(dims, 0, S, stop - start, chunk_seed, X.dtype)
                return (_swap_two(self._propagate_slices(rows, noise, S, factors).samples[-1]),)

            X, restore = _flat_rows(Xnew)
            (flat,) = map_slices(draw, _length(X), self._rows_per_chunk(S), [X.dtype])
            samples = restore(flat)  # [batch..., N, S, P]
            rank = samples.shape.rank
            samples = tf.transpose(samples, [*range(rank - 3), rank - 2, rank - 3, rank - 1])
        return samples[..., 0, :, :] if num_samples is None else samples

    def predict_components(
        self,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: tf.Tensor | int | None = None,
        factors: Factors | None = None,
    ) -> MeanAndVariance:
        """The S Gaussians themselves, with equal weights for Monte Carlo and weights `component_weights()` otherwise.

        :param Xnew: [N, D].
        :return: means [S, N, P] and variances [S, N, P]; [S, P, N, N] with `full_cov`; [S, N, P, P] with
            `full_output_cov`; [S, N, P, N, P] with both.
        """
        X = self._inputs(Xnew)
        factors = self.cached_factors() if factors is None else factors
        seed = self._prediction_seed(seed)
        if full_cov:
            S, integrator = self._joint_components(num_samples)

            def joint(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> MeanAndVariance:
                noise = integrator.noise(self._inner_dims, start, stop - start, _length(X), seed, X.dtype)
                return self._components(X, noise, factors, full_cov=True, full_output_cov=full_output_cov)

            return map_slices(joint, S, self._joint_samples_per_chunk(X), [X.dtype] * 2)

        def swapped(X: tf.Tensor, chunk: _Chunk) -> MeanAndVariance:
            means, covs = self._components(X, chunk.noise, factors, False, full_output_cov, chunk.first)
            return _swap_two(means), _swap_two(covs)

        means, covs = self._map_points(swapped, (X,), factors, num_samples, seed, num_results=2)
        return _swap_two(means), _swap_two(covs)

    def component_weights(self, num_samples: int | None = None) -> tf.Tensor:
        """Weights [S] of the components of `predict_components`; they sum to one."""
        S = self.integrator.num_components(self._inner_dims, self._asked(num_samples))
        return tf.exp(self.integrator.log_weights(self._inner_dims, S, self._dtype))

    def predict_all_layers(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = False,
        *,
        seed: tf.Tensor | int | None = None,
        factors: Factors | None = None,
    ) -> Propagation:
        """Draws and conditional moments of every layer at Xnew [N, D], by Monte Carlo; see `Propagation`.

        :param num_samples: number S of draws; `num_predict_samples` if None.
        :param full_cov: joint over the N points; needs [S, P, N, N] of memory for every layer.
        """
        X = self._inputs(Xnew)
        S = self._asked(num_samples)
        seed = self._prediction_seed(seed)
        factors = self.cached_factors() if factors is None else factors
        dims = [layer.num_latent_gps for layer in self.layers]
        if full_cov:
            noise = MonteCarlo().noise(dims, 0, S, _length(X), seed, X.dtype)
            return self.propagate(X, noise, full_cov=True, factors=factors)

        def layers_at(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
            noise = MonteCarlo().noise(dims, 0, S, stop - start, tf.random.fold_in(seed, index), X.dtype)
            parts = self._propagate_slices(X[start:stop], noise, S, factors)
            return [_swap_two(part) for parts_of_kind in parts for part in parts_of_kind]

        L = len(self.layers)
        flat = map_slices(layers_at, _length(X), self._rows_per_chunk(S), [X.dtype] * (3 * L))
        parts = [_swap_two(part) for part in flat]
        return Propagation(tuple(parts[:L]), tuple(parts[L : 2 * L]), tuple(parts[2 * L :]))

    def posterior(
        self,
        precompute_cache: PrecomputeCacheType | str | None = PrecomputeCacheType.TENSOR,
        *,
        dtype: tf.DType | None = None,
    ) -> DeepGPPosterior:
        """Predictions with cached factors: the same methods, without any factorisation of Kuu.

        :param precompute_cache: "tensor" (default), "variable" (for exported graphs whose cache is updated later) or
            "nocache", as in GPflow.
        :param dtype: float32 for faster products; refused where a layer's Kuu is too badly conditioned for it.
        """
        return DeepGPPosterior(self, precompute_cache, dtype=dtype)

    # Private.

    @property
    def _dtype(self) -> tf.DType:
        return self.layers[-1].q_mu.dtype

    @property
    def _inner_dims(self) -> list[int]:
        return [layer.num_latent_gps for layer in self.layers[:-1]]

    def _inputs(self, X: TensorType) -> tf.Tensor:
        given = getattr(X, "dtype", None)
        if given is not None and tf.as_dtype(given) != self._dtype:
            raise ValueError(
                f"X must have the model's float type {self._dtype.name}, got {tf.as_dtype(given).name}; cast X, or "
                "call gpflow.config.set_default_float before building the model."
            )
        X = tf.convert_to_tensor(X, self._dtype)
        expected = self.layers[0].input_dim
        if expected is not None and X.shape[-1] != expected:
            raise ValueError(
                f"X must have {expected} columns, as the inducing inputs of the first layer have, got shape {X.shape}."
            )
        return X

    def _asked(self, num_samples: int | None) -> int:
        """The number of samples to predict with."""
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
        return self.num_predict_samples if num_samples is None else num_samples

    def _prediction_seed(self, seed: tf.Tensor | int | None) -> tf.Tensor:
        return _as_seed(self.prediction_seed if seed is None else seed)

    def _likelihood_seed(self, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.fold_in(seed, len(self.layers) + 1)

    def _components(
        self,
        X: tf.Tensor,
        noise: Sequence[tf.Tensor],
        factors: Factors,
        full_cov: bool = False,
        full_output_cov: bool = False,
        first: LayerMoments | None = None,
    ) -> MeanAndVariance:
        """Moments of the last layer given draws of the inner ones: [S, N, P] and [S, ...]. Layer 1 sees X once.

        :param first: the first layer's moments at X, if they are there already.
        """
        if first is None:
            first = self.layers[0].latent_moments(X, factors[0], full_cov=full_cov)
        S = noise[0].shape[0] if noise else 1
        if not full_cov and S is not None and self._points_per_chunk < S:  # too many even for a single row

            def of_some(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> MeanAndVariance:
                some = [eps[start:stop] for eps in noise]
                return self._components(X, some, factors, False, full_output_cov, first)

            return map_slices(of_some, S, self._points_per_chunk, [X.dtype] * 2)
        F, moments = X, first
        for i, eps in enumerate(noise):
            F = self.layers[i].sample(F, moments, eps, full_cov=full_cov)
            moments = self.layers[i + 1].latent_moments(F, factors[i + 1], full_cov=full_cov)
        mean, cov = self.layers[-1].outputs(F, moments, full_cov=full_cov, full_output_cov=full_output_cov)
        return (mean[None], cov[None]) if len(self.layers) == 1 else (mean, cov)

    def _propagate_slices(self, X: tf.Tensor, noise: Sequence[tf.Tensor], S: int, factors: Factors) -> Propagation:
        """`propagate` with a bounded number of draws at once; `noise` for every layer."""
        if self._points_per_chunk >= S:
            return self.propagate(X, noise, factors=factors)

        def of_some(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
            parts = self.propagate(X, [eps[start:stop] for eps in noise], factors=factors)
            return [part for parts_of_kind in parts for part in parts_of_kind]

        L = len(self.layers)
        parts = list(map_slices(of_some, S, self._points_per_chunk, [X.dtype] * (3 * L)))
        parts[L], parts[2 * L] = parts[L][:1], parts[2 * L][:1]  # the first layer's moments do not depend on draws
        return Propagation(tuple(parts[:L]), tuple(parts[L : 2 * L]), tuple(parts[2 * L :]))

    @property
    def _points_per_chunk(self) -> int:
        """How many points, counting the S copies, go through the layers at once."""
        floats = max(int(layer.q_mu.shape[0]) * (3 + layer.num_latent_gps) for layer in self.layers)
        return max(1, CHUNK_BYTES // (self._dtype.size * floats))

    def _rows_per_chunk(self, S: int) -> int:
        return max(1, self._points_per_chunk // S)

    def _joint_samples_per_chunk(self, X: tf.Tensor) -> tf.Tensor:
        """How many joint draws over all N points go through the layers at once."""
        N = tf.cast(tf.shape(X)[0], tf.int64)
        floats = max(int(layer.q_mu.shape[0]) * (3 + layer.num_latent_gps) for layer in self.layers)
        squares = 4 * max(max(layer.num_latent_gps, layer.output_dim) for layer in self.layers)
        per_sample = tf.maximum(N * floats + N * N * squares, 1)
        return tf.cast(tf.clip_by_value(CHUNK_BYTES // (self._dtype.size * per_sample), 1, 2**30), tf.int32)

    def _map_points(
        self,
        fn: Callable[..., Sequence[tf.Tensor]],
        rows: tuple[tf.Tensor, ...],
        factors: Factors,
        num_samples: int | None,
        seed: tf.Tensor,
        num_results: int,
    ) -> tuple[tf.Tensor, ...]:
        """`fn(*rows, chunk)` on chunks of rows that fit the memory budget with all S components.

        `fn` returns tensors with the rows on the first axis. Every chunk has its own noise, which does not depend on
        the number of rows, so that predictions for the first rows stay the same when rows are appended. The first
        layer, which has no draws below it, is evaluated for all rows before.
        """
        S = self.integrator.num_components(self._inner_dims, self._asked(num_samples))
        dtype, X = self._dtype, rows[0]
        weights = tf.exp(self.integrator.log_weights(self._inner_dims, S, dtype))

        def first_layer(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> LayerMoments:
            return self.layers[0].latent_moments(X[start:stop], factors[0])

        first = map_slices(first_layer, _length(X), self._rows_per_chunk(1), [dtype] * 2)

        def of_chunk(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> Sequence[tf.Tensor]:
            chunk_seed = tf.random.fold_in(seed, index)
            noise = self.integrator.noise(self._inner_dims, 0, S, stop - start, chunk_seed, dtype)
            moments = LayerMoments(*(part[start:stop] for part in first))
            parts = [part[start:stop] for part in rows]
            return fn(*parts, _Chunk(noise, weights, self._likelihood_seed(chunk_seed), moments))

        return map_slices(of_chunk, _length(X), self._rows_per_chunk(S), [dtype] * num_results)

    def _joint_components(self, num_samples: int | None) -> tuple[int, Integrator]:
        """Joint draws over many points are Monte Carlo for every model: nodes would grow with N."""
        S = self._asked(num_samples)
        return MonteCarlo().num_components(self._inner_dims, S), MonteCarlo()

    def _joint_mixture(
        self, X: tf.Tensor, full_output_cov: bool, num_samples: int | None, seed: tf.Tensor, factors: Factors
    ) -> MeanAndVariance:
        """Moments of the mixture with covariances between the N points of X [N, D]; components are not kept."""
        S, integrator = self._joint_components(num_samples)
        N, P = tf.shape(X)[0], self.layers[-1].output_dim

        def some_components(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            noise = integrator.noise(self._inner_dims, start, stop - start, N, seed, X.dtype)
            means, covs = self._components(X, noise, factors, full_cov=True, full_output_cov=full_output_cov)
            return means, tf.reduce_sum(covs, axis=0)

        shape = [N, P, N, P] if full_output_cov else [P, N, N]
        means, total = sum_slices(some_components, S, self._joint_samples_per_chunk(X), tf.zeros(shape, X.dtype))
        means = tf.ensure_shape(means, [S, X.shape[0], P])
        mean = tf.reduce_mean(means, axis=0)
        centred = means - mean
        equation = "snp,smq->npmq" if full_output_cov else "snp,smp->pnm"
        return mean, (total + tf.einsum(equation, centred, centred)) / S

    def _joint_draws(
        self, X: tf.Tensor, S: int, dims: Sequence[int], seed: tf.Tensor, factors: Factors
    ) -> tuple[tf.Tensor]:
        def draw(index: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor]:
            noise = MonteCarlo().noise(dims, start, stop - start, tf.shape(X)[0], seed, X.dtype)
            F = X
            for layer, layer_factors, eps in zip(self.layers, factors, noise, strict=True):
                F = layer.sample(F, layer.latent_moments(F, layer_factors, full_cov=True), eps, full_cov=True)
            return (F,)

        return map_slices(draw, S, self._joint_samples_per_chunk(X), [X.dtype])


class DeepGPQuad(DeepGP):
    """Deep GP whose inner layers are integrated by Gauss-Hermite quadrature: deterministic, for few hidden dimensions.

    The number of components is `num_nodes` to the power of the number of inner latent GPs, in training and prediction.
    Joint predictions over points (`full_cov`) and draws stay Monte Carlo.

    :param num_nodes: quadrature nodes in each inner dimension.
    :raises ValueError: if the grid has more than 100,000 nodes.
    """

    def __init__(
        self,
        layers: Sequence[SVGPLayer],
        likelihood: Likelihood,
        *,
        num_data: int | None = None,
        num_nodes: int = 20,
        num_predict_samples: int = 100,
        prediction_seed: int = 0,
    ) -> None:
        integrator = GaussHermite(num_nodes)
        integrator.num_components([layer.num_latent_gps for layer in layers[:-1]], 1)  # refuses too large a grid
        super().__init__(
            layers,
            likelihood,
            num_data=num_data,
            num_predict_samples=num_predict_samples,
            prediction_seed=prediction_seed,
            integrator=integrator,
        )


def _check_layers(layers: list[SVGPLayer], likelihood: Likelihood) -> None:
    if not layers:
        raise ValueError("layers must have at least one SVGPLayer, got none.")
    for number, layer in enumerate(layers, start=1):
        if not isinstance(layer, SVGPLayer):
            raise ValueError(f"layers must be SVGPLayer objects, got {type(layer).__name__} as layer {number}.")
    if len({id(layer) for layer in layers}) < len(layers):
        raise ValueError("layers must be different objects, got the same layer twice; use copy.deepcopy.")
    for number, (layer, following) in enumerate(pairwise(layers), start=1):
        if following.input_dim is not None and following.input_dim != layer.output_dim:
            raise ValueError(
                f"layer {number + 1} must take the {layer.output_dim} outputs of layer {number}, but its inducing "
                f"inputs have {following.input_dim} columns."
            )
    dtypes = {layer.q_mu.dtype.name for layer in layers}
    if len(dtypes) > 1:
        raise ValueError(f"all layers must have one float type, got {sorted(dtypes)}.")
    needed = getattr(likelihood, "latent_dim", None)
    if needed is not None and not isinstance(likelihood, SwitchedLikelihood) and needed != layers[-1].output_dim:
        raise ValueError(
            f"the last layer must have the {needed} outputs that {type(likelihood).__name__} takes, got "
            f"{layers[-1].output_dim}."
        )


def _as_seed(seed: tf.Tensor | int) -> tf.Tensor:
    if isinstance(seed, int | np.integer):
        return tf.constant([int(seed) & 0x7FFFFFFF, int(seed) >> 31 & 0x7FFFFFFF], tf.int32)
    seed = tf.convert_to_tensor(seed, tf.int32)
    if seed.shape != [2]:
        raise ValueError(f"seed must be an integer or an int32 tensor of shape [2], got shape {seed.shape}.")
    return seed


def _fresh_seed() -> tf.Tensor:
    return tf.random.uniform([2], maxval=tf.int32.max, dtype=tf.int32)


def _refuse_covariances(method: str, full_cov: bool, full_output_cov: bool) -> None:
    if full_cov or full_output_cov:
        raise NotImplementedError(
            f"{method} has no full covariances, as in GPflow; leave full_cov and full_output_cov."
        )


def _length(X: tf.Tensor) -> tf.Tensor | int:
    return tf.shape(X)[0] if X.shape[0] is None else X.shape[0]


def _swap_two(x: tf.Tensor) -> tf.Tensor:
    return tf.transpose(x, [1, 0, *range(2, x.shape.rank)])


def _flat_rows(X: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """[batch..., N, D] -> [rows, D], and the way back for results [rows, ...]."""
    if X.shape.rank == 2:
        return X, lambda result: result
    lead, static_lead = tf.shape(X)[:-1], X.shape[:-1]

    def restore(result: tf.Tensor) -> tf.Tensor:
        shaped = tf.reshape(result, tf.concat([lead, tf.shape(result)[1:]], axis=0))
        shaped.set_shape(static_lead.concatenate(result.shape[1:]))
        return shaped

    return tf.reshape(X, [-1, X.shape[-1]]), restore


def _over_batch(fn: Callable[[tf.Tensor], Any], X: tf.Tensor, num_results: int) -> tuple[tf.Tensor, ...]:
    """`fn` of [N, D] for every element of the leading axes of X [batch..., N, D]."""
    if X.shape.rank == 2:
        return tuple(fn(X))
    flat = tf.reshape(X, tf.concat([[-1], tf.shape(X)[-2:]], axis=0))
    results = tf.map_fn(fn, flat, fn_output_signature=(X.dtype,) * num_results)
    lead = tf.shape(X)[:-2]
    return tuple(tf.reshape(result, tf.concat([lead, tf.shape(result)[1:]], axis=0)) for result in results)


def _mixture_moments(means: tf.Tensor, covs: tf.Tensor, weights: tf.Tensor, full_output_cov: bool) -> MeanAndVariance:
    """Moments [N, P] and [N, P] or [N, P, P] of mixtures with components [S, N, P] and weights [S]."""
    mean = tf.tensordot(weights, means, axes=1)
    centred = means - mean
    if full_output_cov:
        return mean, tf.tensordot(weights, covs, axes=1) + tf.einsum("s,snp,snq->npq", weights, centred, centred)
    return mean, tf.tensordot(weights, covs + tf.square(centred), axes=1)
