"""Deep Gaussian processes with doubly stochastic variational inference, as GPflow models.

    y_n ~ p(y | f^L(f^{L-1}(... f^1(x_n))))

The marginals of a layer at a point depend on the previous layer at that point only, so a draw through all layers costs
N times as much as one point (Sec. 3.1 of [1]), and the bound is an average over draws and over minibatches (Sec. 3.2).
A model with one `SVGPLayer` equals `gpflow.models.SVGP`.

Shapes: N points, S mixture components (draws of the inner layers), P outputs of the last layer. Given a draw of
the inner layers the last layer is Gaussian; every prediction is that of the mixture of the S Gaussians, Eq. (18).

[1] Salimbeni and Deisenroth, "Doubly Stochastic Variational Inference for Deep Gaussian Processes", NIPS 2017.

`DeepGPQuad` integrates over the inner layers by Gauss-Hermite quadrature in place of draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from check_shapes import check_shapes, inherit_check_shapes
from gpflow.base import MeanAndVariance, RegressionData, TensorType
from gpflow.likelihoods import Likelihood
from gpflow.models import ExternalDataTrainingLossMixin, GPModel
from gpflow.posteriors import PrecomputeCacheType
from gpflow.utilities import assert_params_false

from gpflow_deep_base.seeds import as_seed, fresh_seed

from ..functions.functions import NUM_FEATURES, FunctionDraws, draw_functions
from ..functions.pathwise import FunctionNoise
from ..layers.global_inducing import GlobalInducingLayer
from ..layers.latent import LatentVariableLayer
from ..layers.protocol import Factors, Layer, check_layers
from ..posteriors import ensemble as members
from ..posteriors.ensemble import Ensemble, InducingSamples, per_member
from ..posteriors.importance import importance_weighted
from .bound import Draws, elbo, expected_log_likelihood, weighted_noise
from .posterior import DeepGPPosterior
from .predictions import Predictions
from .propagation import Propagation, checked_points, propagate
from .quadrature import GaussHermite, Integrator, MonteCarlo, Sobol

__all__ = ["NUM_PREDICT_SAMPLES", "DeepGP", "DeepGPQuad"]

#: Default number of components of a prediction: more precise than 100 independent draws, see docs/results/deep_gp.md.
NUM_PREDICT_SAMPLES = 32

Seed: TypeAlias = tf.Tensor | int | None


def _of_last_layer(name: str) -> property:
    """What `GPModel` calls the model's is the last layer's, if it has one."""
    return property(lambda self: getattr(self.layers[-1], name), lambda self, new: setattr(self.layers[-1], name, new))


class DeepGP(GPModel, ExternalDataTrainingLossMixin):
    """Deep GP with layers f^1, ..., f^L and a GPflow likelihood for the outputs of the last one.

    :param layers: the layers, first one first; the outputs of each are the inputs of the next. Usually `SVGPLayer`, but
        any `tf.Module` with the members of `Layer` will do.
    :param likelihood: any GPflow likelihood whose latent dimension is the width of the last layer.
    :param num_data: number N of training points, which scales the minibatch likelihood; None for no scaling.
    :param num_samples: number S of draws per point in the bound.
    :param num_importance_samples: number K of importance samples of latent variables in the bound, see `importance`.
    :param num_predict_samples: number S of components in predictions.
    :param prediction_seed: predictions are deterministic functions of the parameters, the inputs and this seed, from 0
        to 2**62 - 1.
    :param integrator: averages over the inner layers in the bound; independent draws at every point by default.
    :param predict_integrator: the same in predictions; by default Sobol points, which all rows share.
    :raises ValueError: if the layers do not fit one another or the likelihood, or a number is out of range.
    """

    layers: list[Any]
    """Each a `Layer`; what else it has depends on its type."""
    likelihood: Likelihood
    num_importance_samples: int = 1
    kl_weight: float = 1.0
    """Of the KL in `elbo`, which is a bound with 1 only."""
    is_predictive = False  # whether `elbo` has logs of predicted densities
    _kind_of_predictions: type[Predictions] = Predictions
    samples: InducingSamples | None = None
    """Samples of the posterior, which predictions come from in place of q(u) once all are drawn: see `sampling`."""

    def __init__(
        self,
        layers: Sequence[Layer],
        likelihood: Likelihood,
        *,
        num_data: int | None = None,
        num_samples: int = 1,
        num_importance_samples: int = 1,
        num_predict_samples: int = NUM_PREDICT_SAMPLES,
        prediction_seed: int = 0,
        integrator: Integrator = MonteCarlo(),
        predict_integrator: Integrator = Sobol(),
    ) -> None:
        # Whether the parts fit one another.
        layers = list(layers)
        check_layers(layers, likelihood)
        for name, value in (
            ("num_data", 1 if num_data is None else num_data),
            ("num_samples", num_samples),
            ("num_importance_samples", num_importance_samples),
            ("num_predict_samples", num_predict_samples),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}.")
        # The bound of importance weighting holds for independent draws.
        if num_importance_samples > 1 and not isinstance(integrator, MonteCarlo):
            raise ValueError(
                "num_importance_samples must be 1 unless the integrator is MonteCarlo(), as it is by default."
            )
        as_seed(prediction_seed)  # refuses what is no seed
        # `GPModel.__init__` would give kernel and mean function a second home.
        super(GPModel, self).__init__()
        self.layers = layers
        self.likelihood = likelihood
        self.num_latent_gps = layers[-1].num_latent_gps
        # What errors call the layers.
        for number, layer in enumerate(layers, start=1):
            layer.label = f"layer {number} of {len(layers)}"
        self.num_data = num_data
        self.num_samples = num_samples
        if num_importance_samples > 1:  # else the class's: files of models without it stay what they are
            self.num_importance_samples = num_importance_samples
        self.num_predict_samples = num_predict_samples
        self.prediction_seed = prediction_seed
        self.integrator = integrator
        self.predict_integrator = predict_integrator

    kernel = _of_last_layer("kernel")
    mean_function = _of_last_layer("mean_function")
    inducing_variable = _of_last_layer("inducing_variable")
    q_mu = _of_last_layer("q_mu")
    q_sqrt = _of_last_layer("q_sqrt")
    whiten = _of_last_layer("whiten")
    q_diag = _of_last_layer("q_diag")

    # The model.

    def factors(self, *, seed: Seed = None) -> Factors:
        """Cholesky factors of every layer. Compute once and hand to the methods below to save time.

        :param seed: of a draw of global inducing outputs, where layers have them; `prediction_seed` if None.
        """
        # Global inducing outputs of a layer depend on draws of those below: factors are of one draw of all layers.
        if self._has(GlobalInducingLayer):
            return members.one_draw(self.layers, as_seed(self.prediction_seed if seed is None else seed))
        return tuple(layer.factors() for layer in self.layers)

    def cached_factors(self, *, dtype: tf.DType | None = None) -> Factors:
        """What predictions need of every layer, so that they consist of products; `posterior` keeps it.

        :return: of each layer; or an `Ensemble`, if the model `is_sampled` or has global inducing outputs.
        """
        # Each sample of the posterior, or draw of global inducing outputs, has factors of its own.
        if self.is_sampled or self._has(GlobalInducingLayer):
            seed = as_seed(self.prediction_seed)
            return members.cached_factors(self.layers, self._samples, self.num_predict_samples, seed, dtype=dtype)
        return tuple(layer.cache(dtype=dtype) for layer in self.layers)

    @check_shapes("X: [N, D]")
    def propagate(
        self, X: TensorType, noise: Sequence[tf.Tensor], *, full_cov: bool = False, factors: Factors | None = None
    ) -> Propagation:
        """Push X through the layers with the given noise: Eq. (15).

        :param noise: standard-normal draws (or quadrature nodes, or zeros for a mean pass) for each inner layer, and
            for the last layer too if draws of its outputs are wanted: [S, N, L] or [S, 1, L], L its `num_latent_gps`.
        :param full_cov: joint draws and covariances over the N points.
        :raises ValueError: if the number of noise arrays is neither that of the layers nor one less.
        """
        X = checked_points(X, self.layers[0])
        factors = self.factors() if factors is None else factors
        steps = propagate(self.layers, factors, X, [tf.cast(eps, X.dtype) for eps in noise], full_cov=full_cov)
        return Propagation.of(steps, full_cov=full_cov)

    @property
    def is_sampled(self) -> bool:
        """Whether predictions are mixtures over `samples`."""
        return self.samples is not None and self.samples.is_complete

    @property
    def num_members(self) -> int:
        """How many versions of all layers predictions are mixtures over: samples, or as many draws of global inducing
        outputs as there are `num_predict_samples`."""
        return members.num_members(self.layers, self._samples, self.num_predict_samples)

    # The objective.

    def refuse_if_sampled(self) -> None:
        """Training would move q(u) and hyperparameters, but not the samples that predictions come from.

        :raises ValueError: if the model `is_sampled`.
        """
        if self.is_sampled:
            raise ValueError(
                "a model to train must predict from q(u), got one that predicts from samples, which training would "
                "leave as they are; set model.samples = None to train it on, then sample anew (gpflow_deep.Sampler)."
            )

    @check_shapes("return: []  # nats")
    def prior_kl(self, factors: Factors | None = None) -> tf.Tensor:
        """KL[q || p] of all layers, in nats: the last term of Eq. (17)."""
        factors = self.factors() if factors is None else factors
        return tf.add_n([layer.prior_kl(part) for layer, part in zip(self.layers, factors, strict=True)])

    @inherit_check_shapes  # Type-ignore: GPflow's models narrow the signature in the same way.
    def maximum_log_likelihood_objective(  # type: ignore[override]
        self, data: RegressionData, *, seed: Seed = None
    ) -> tf.Tensor:
        """`elbo(data, seed=seed)`."""
        return self.elbo(data, seed=seed)

    @check_shapes("data[0]: [N, D]", "data[1]: [N, Q]", "return: []  # nats, of the whole data set")
    def elbo(self, data: RegressionData, *, seed: Seed = None, noise: Sequence[tf.Tensor] | None = None) -> tf.Tensor:
        """Unbiased estimate of the evidence lower bound, Eq. (17), in nats and for all `num_data` points.

        :param data: a minibatch (X, Y).
        :param seed: fixes the draws of the inner layers; None for fresh draws from TensorFlow's global generator.
        :param noise: the draws themselves, as in `propagate`, in place of those from `seed`; equally weighted.
        """
        seed = fresh_seed() if seed is None else as_seed(seed)
        X = checked_points(data[0], self.layers[0])
        return elbo(self, (X, data[1]), self.factors(seed=seed), self._draws(X, seed, noise))

    def expected_log_likelihood(self, data: RegressionData, factors: Factors, *, seed: Seed) -> tf.Tensor:
        """The likelihood's part of `elbo`, with given factors of the layers: [], nats, for all `num_data` points."""
        X = checked_points(data[0], self.layers[0])
        return self.likelihoods_part((X, data[1]), factors, self._draws(X, as_seed(seed), None))

    def likelihoods_part(self, data: RegressionData, factors: Factors, draws: Draws) -> tf.Tensor:
        """The first sum of Eq. (17), or what stands in its place. Parameters as of `bound.elbo`."""
        # The log of a mean of weights for each row with latent variables, else a mean of logs.
        part = importance_weighted if self._has(LatentVariableLayer) else expected_log_likelihood
        return part(self, data, factors, draws)

    def _draws(self, X: tf.Tensor, seed: tf.Tensor, noise: Sequence[tf.Tensor] | None) -> Draws:
        """Draws of the inner layers for rows X [N, D]; those with this noise, if it is given."""
        # Draws that are given count alike.
        weights = None
        if noise is None:
            # K consecutive draws are the importance samples of a row.
            num_draws = self.num_samples * (self.num_importance_samples if self._has(LatentVariableLayer) else 1)
            noise, weights = weighted_noise(self.integrator, self._inner_dims, num_draws, X, seed)
        return Draws(noise, weights, self.likelihood_seed(seed))

    @check_shapes("data[0]: [N, D]", "data[1]: [N, Q]", "return: []")
    def training_loss(self, data: RegressionData, *, seed: Seed = None) -> tf.Tensor:
        """Minus the bound and minus the log density of the parameters' priors, in nats.

        :param seed: fixes the draws, which makes the loss a deterministic function of the parameters.
        :raises ValueError: if the model `is_sampled`; `elbo` is that of q(u) all the same.
        """
        self.refuse_if_sampled()
        return self._training_loss(data, seed=seed)

    def training_loss_closure(
        self, data: RegressionData | tf.data.Iterator, *, compile: bool = True, seed: Seed = None
    ) -> Callable[[], tf.Tensor]:
        """The loss as a function of nothing, as GPflow's and Keras' optimisers take it.

        :param data: a pair (X, Y), or an iterator of a `tf.data.Dataset` of such pairs.
        :param compile: wrap the loss in `tf.function`.
        :param seed: give one with `gpflow.optimizers.Scipy`, whose line searches need a deterministic loss; with None,
            every evaluation has fresh draws.
        """

        def loss(*batch: tf.Tensor) -> tf.Tensor:
            return self.training_loss(batch, seed=seed)

        if isinstance(data, tf.data.Iterator):
            # Each call takes the next batch, outside of the graph, which is traced once for all of them.
            of_batch = tf.function(loss, input_signature=data.element_spec, autograph=False) if compile else loss
            return lambda: of_batch(*next(data))

        def closure() -> tf.Tensor:
            return loss(*data)

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
        seed: Seed = None,
        factors: Factors | None = None,
    ) -> MeanAndVariance:
        """Mean and covariance of the mixture of S Gaussians that approximates q(f(Xnew)), Eq. (18).

        What is predicted for a row is a smooth function of that row alone. With `full_cov`, the inner layers are drawn
        jointly over the N points, by Monte Carlo.

        :param num_samples: number S of components; `num_predict_samples` if None.
        :param seed: of the draws; `prediction_seed` if None.
        :param factors: as from `cached_factors()`; computed if None.
        """
        predictions = self._predictions(num_samples, seed, factors)
        return predictions.f(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)

    @inherit_check_shapes
    def predict_y(
        self,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        factors: Factors | None = None,
    ) -> MeanAndVariance:
        """Mean and variance of new observations: the likelihood is applied to each component, then they are mixed.

        Further arguments as in `predict_f`; with `full_cov` or `full_output_cov` a NotImplementedError, as in GPflow.
        """
        assert_params_false(self.predict_y, full_cov=full_cov, full_output_cov=full_output_cov)
        return self._predictions(num_samples, seed, factors).y(Xnew)

    @check_shapes("data[0]: [batch..., N, D]", "data[1]: [batch..., N, Q]", "return: [batch..., N]  # nats")
    def predict_log_density(
        self,
        data: RegressionData,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        factors: Factors | None = None,
    ) -> tf.Tensor:
        """log p(y_n) of each held-out point in nats: the log of the *mean* density of the S components.

        Further arguments as in `predict_f`; with `full_cov` or `full_output_cov` a NotImplementedError, as in GPflow.
        """
        assert_params_false(self.predict_log_density, full_cov=full_cov, full_output_cov=full_output_cov)
        predictions = self._predictions(num_samples, seed, factors)
        return predictions.log_density(*data)

    @inherit_check_shapes
    def predict_f_samples(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = True,
        full_output_cov: bool = False,
        *,
        seed: Seed = None,
        factors: Factors | None = None,
    ) -> tf.Tensor:
        """Draws of f(Xnew) through all layers: [S, N, P], or [N, P] if `num_samples` is None.

        :param full_cov: True for draws of functions, joint over the N points in every layer; False for independent
            draws at every point, which is much cheaper.
        :param full_output_cov: no effect: a draw always has the right covariance between outputs.
        :param seed: of the draws; None for fresh ones from TensorFlow's global generator.
        """
        # A single draw has an axis of draws here, and none in the end.
        seed = fresh_seed() if seed is None else seed
        factors = self._from_any_member(factors, seed)
        predictions = self._predictions(1 if num_samples is None else num_samples, seed, factors)
        samples = predictions.samples(Xnew, full_cov=full_cov)
        return samples[..., 0, :, :] if num_samples is None else samples

    def sample_functions(
        self,
        num_functions: int,
        *,
        num_features: int = NUM_FEATURES,
        noise: FunctionNoise = "shared",
        seed: Seed = None,
    ) -> FunctionDraws:
        """Functions drawn from q(f), by Matheron's rule in every layer: a callable X [N, D] -> [S, N, P].

        They are the same functions at whatever inputs they are asked for, can be differentiated, and cost the same for
        each input; `predict_f_samples` draws at given inputs only, with factors [N, N]. Draw them outside of
        `tf.function`, call them anywhere. Later changes of the model do not change them.

        :param num_functions: how many functions, S.
        :param num_features: of the prior of each latent GP, even: random Fourier features.
        :param noise: how they have the noise between layers: "shared", one number for all inputs of a function, which
            then is smooth, and of which the distribution at each input is right; or "white", another one at each
            input, which is right between inputs, too, and which derivatives leave out.
        :param seed: of the draws; None for fresh ones from TensorFlow's global generator.
        :raises ValueError: naming a kernel, inducing variable or layer that functions cannot be drawn of: there are
            spectral densities of GPflow's stationary kernels only, see `layers.spectral`.
        """
        seed = fresh_seed() if seed is None else as_seed(seed)
        return draw_functions(
            self.layers,
            num_functions,
            num_features=num_features,
            noise=noise,
            seed=seed,
            samples=self._samples,
            points=self._points_of_functions(num_functions, seed),
            members=members.for_functions(self.layers, self._samples, num_functions, seed),
        )

    @check_shapes("Xnew: [N, D]")
    def predict_components(
        self,
        Xnew: TensorType,
        full_cov: bool = False,
        full_output_cov: bool = False,
        *,
        num_samples: int | None = None,
        seed: Seed = None,
        factors: Factors | None = None,
    ) -> MeanAndVariance:
        """The S Gaussians themselves, whose weights are `component_weights()`: 1/S unless by quadrature.

        :return: means [S, N, P] and variances [S, N, P]; [S, P, N, N] with `full_cov`; [S, N, P, P] with
            `full_output_cov`; [S, N, P, N, P] with both.
        """
        predictions = self._predictions(num_samples, seed, factors)
        return predictions.components(Xnew, full_cov=full_cov, full_output_cov=full_output_cov)

    def component_weights(self, num_samples: int | None = None) -> tf.Tensor:
        """Weights [S] of the components of `predict_components`; they sum to one."""
        integrator = per_member(self.predict_integrator, self.num_members)
        S = integrator.num_components(self._inner_dims, self._asked(num_samples))
        return tf.exp(integrator.log_weights(self._inner_dims, S, self.layers[-1].dtype))

    @check_shapes("Xnew: [N, D]")
    def predict_all_layers(
        self,
        Xnew: TensorType,
        num_samples: int | None = None,
        full_cov: bool = False,
        *,
        seed: Seed = None,
        factors: Factors | None = None,
    ) -> Propagation:
        """S draws and conditional moments of every layer at Xnew; see `Propagation`.

        The draws of one s have the same noise at all rows: smooth, with the right distribution at each of them.

        :param full_cov: draws of functions, joint over the N points; needs [S, P, N, N] of memory for every layer.
        """
        factors = self._from_any_member(factors, self.prediction_seed if seed is None else seed)
        return self._predictions(num_samples, seed, factors).all_layers(Xnew, full_cov=full_cov)

    def posterior(
        self, precompute_cache: PrecomputeCacheType | str | None = "tensor", *, dtype: tf.DType | None = None
    ) -> DeepGPPosterior:
        """Predictions with cached factors: the same methods, without any factorisation of Kuu.

        :param precompute_cache: "tensor", "variable" (for exported graphs that are updated later) or "nocache".
        :param dtype: float32 for faster products; refused where a layer's Kuu is too badly conditioned for it.
        """
        return DeepGPPosterior(self, precompute_cache, dtype=dtype)

    def likelihood_seed(self, seed: Seed = None) -> tf.Tensor:
        """The seed, int32 [2], of likelihoods that integrate by Monte Carlo, where `predict_f` gets `seed`."""
        return tf.random.fold_in(as_seed(self.prediction_seed if seed is None else seed), len(self.layers) + 1)

    # Private.

    def _has(self, kind: type) -> bool:
        """Whether a layer is of this kind."""
        return any(isinstance(layer, kind) for layer in self.layers)

    def _from_any_member(self, factors: Factors | None, seed: tf.Tensor | int) -> Factors:
        """Factors for draws, of which there may be fewer than members."""
        factors = self.cached_factors() if factors is None else factors
        return factors.rolled(as_seed(seed)) if isinstance(factors, Ensemble) else factors

    def _points_of_functions(self, num_functions: int, seed: tf.Tensor) -> Sequence[tf.Tensor]:
        """Noise [S, 1, L] of each inner layer that its functions have at all inputs; none: they are drawn."""
        return ()

    @property
    def _samples(self) -> InducingSamples | None:
        """To predict from."""
        return self.samples if self.is_sampled else None

    @property
    def _inner_dims(self) -> list[int]:
        return [layer.num_latent_gps for layer in self.layers[:-1]]

    def _asked(self, num_samples: int | None) -> int:
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
        return self.num_predict_samples if num_samples is None else num_samples

    def _predictions(self, num_samples: int | None, seed: Seed, factors: Factors | None) -> Predictions:
        factors = self.cached_factors() if factors is None else factors
        seeds = as_seed(self.prediction_seed if seed is None else seed), self.likelihood_seed(seed)
        integrator = self.predict_integrator
        num_samples = self._asked(num_samples)
        return self._kind_of_predictions(self.layers, factors, self.likelihood, integrator, num_samples, *seeds)


class DeepGPQuad(DeepGP):
    """Deep GP whose inner layers are integrated by Gauss-Hermite quadrature: deterministic, for few hidden dimensions.

    The number of components is `num_nodes` to the power of the number of inner latent GPs, in training and prediction.
    Joint predictions over points (`full_cov`), `predict_all_layers` and draws are as in `DeepGP`.

    :param num_nodes: quadrature nodes in each inner dimension.
    :raises ValueError: if the grid has more than 100,000 nodes.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        likelihood: Likelihood,
        *,
        num_data: int | None = None,
        num_nodes: int = 20,
        num_predict_samples: int = NUM_PREDICT_SAMPLES,
        prediction_seed: int = 0,
    ) -> None:
        # The same nodes in training and in predictions.
        integrator = GaussHermite(num_nodes)
        super().__init__(
            layers,
            likelihood,
            num_data=num_data,
            num_predict_samples=num_predict_samples,
            prediction_seed=prediction_seed,
            integrator=integrator,
            predict_integrator=integrator,
        )
        integrator.num_components(self._inner_dims, 1)  # refuses too large a grid
