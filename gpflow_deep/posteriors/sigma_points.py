"""Deep sigma point processes (Jankowiak, Pleiss and Gardner, "Deep Sigma Point Processes", UAI 2020): layers of a deep
GP, trained by the density that they predict.

    p(y | x) = sum_s w_s p(y | x, eps_s),    f^l = mean_l(f^{l-1}) + sqrt(var_l(f^{l-1})) eps_s^l

Points eps_s and weights w_s are parameters, the same for all rows. The last layer is integrated out. A drawn function
has eps_s at all rows with probability w_s, and is a draw of the last layer there. What is maximised is no bound of the
evidence but (their Section 3)

    sum_n log p(y_n | x_n) - b KL[q || p]

in which variances of the layers explain the data as the noise of the likelihood does: the density may be wider at one
input than at another, and no normal distribution.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import gpflow
import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData
from gpflow.likelihoods import Likelihood

from gpflow_deep_base.seeds import as_seed

from ..layers.global_inducing import is_global
from ..layers.protocol import Factors, Layer
from ..model import likelihoods
from ..model.bound import Draws, for_all_rows
from ..model.deep_gp import NUM_PREDICT_SAMPLES, DeepGP
from ..model.predictions import Predictions, log_density
from ..model.propagation import Step, checked_points, evaluate, last_outputs, propagate, rows_per_slice
from ..model.quadrature import Integrator, Sobol
from .ensemble import Ensemble
from .importance import has_latents

__all__ = ["KL_WEIGHT", "NUM_POINTS", "DeepSigmaPointProcess", "SigmaPoints"]

#: Sigma points, and the weight b of the KL, unless they are given.
NUM_POINTS = 8
KL_WEIGHT = 5.0


class SigmaPoints(tf.Module):
    """An `Integrator` whose nodes and weights are learnt; nodes are shared by all rows.

    They start at Sobol points with mean 0 and covariance I, equally weighted.

    :ivar points: of each inner layer, parameters [S, L].
    :ivar logits: of the weights, parameter [S].

    :param dims: numbers L of latent GPs of the inner layers.
    :param num_points: number S of nodes.
    :raises ValueError: if there are fewer than 1.
    """

    def __init__(self, dims: Sequence[int], num_points: int = NUM_POINTS, dtype: tf.DType | None = None) -> None:
        super().__init__()
        if num_points < 1:
            raise ValueError(f"num_points must be at least 1, got {num_points}.")
        dtype = gpflow.default_float() if dtype is None else dtype
        nodes = Sobol().noise(dims, num_points, 1, as_seed(0), dtype)
        self.points = [gpflow.Parameter(eps[:, 0], dtype=dtype) for eps in nodes]
        self.logits = gpflow.Parameter(tf.zeros([num_points if sum(dims) else 1], dtype), dtype=dtype)

    def num_components(self, dims: Sequence[int], num_samples: int) -> int:
        """S, whatever `num_samples` is; one where there is nothing to integrate."""
        return int(self.logits.shape[0])

    def noise(
        self, dims: Sequence[int], num_components: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType
    ) -> list[tf.Tensor]:
        """The same nodes for every row: [S, 1, dim] for each inner layer; `seed` is not used."""
        return [tf.cast(eps, dtype)[:num_components, None, :] for eps in self.points]

    def log_weights(self, dims: Sequence[int], num_components: int, dtype: tf.DType) -> tf.Tensor:
        """Logarithms of the weights."""
        return tf.nn.log_softmax(tf.cast(self.logits, dtype))

    def drawn(self, num_draws: int, num_points: tf.Tensor | int, seed: tf.Tensor, dtype: tf.DType) -> list[tf.Tensor]:
        """Nodes that were drawn with the probabilities of their weights: [S, num_points, dim] for each inner layer.

        :param seed: int32 [2].
        """
        # A point for each uniform number, by the cumulative weights.
        ends = tf.cumsum(tf.nn.softmax(self.logits))[:-1]
        uniform = tf.random.stateless_uniform([num_points, num_draws], tf.random.fold_in(seed, 0), dtype=ends.dtype)
        chosen = tf.reshape(tf.searchsorted(ends, tf.reshape(uniform, [-1]), side="right"), tf.shape(uniform))
        return [tf.gather(tf.cast(eps, dtype), tf.transpose(chosen)) for eps in self.points]


def predicted_log_density(model: DeepGP, data: RegressionData, factors: Factors, draws: Draws) -> tf.Tensor:
    """N / B sum_b log sum_s w_s E[ p(y_b | f_b) | point s of the inner layers ], [], nats: the first sum above.

    :param model: of which layers, likelihood and `num_data` are read.
    :param data: a minibatch (X [B, D], Y [B, Q]).
    :param factors: of each layer.
    :param draws: the points and their weights.
    """
    X, Y = data
    # log p(y_b | x_b, eps_s) with the last layer integrated out, and the mixture over s.
    size = rows_per_slice(model.layers)
    f_mean, f_var = evaluate(last_outputs, model.layers, factors, X, draws.noise, size=size)
    terms = likelihoods.predict_log_density(model.likelihood, X, f_mean, f_var, Y, draws.likelihood_seed)  # [S, B]
    # Points that were handed in count alike.
    weights = draws.weights
    if weights is None:
        weights = tf.fill(tf.shape(terms)[:1], 1 / tf.cast(tf.shape(terms)[0], X.dtype))
    return for_all_rows(log_density(weights, terms), model.num_data)


class _AtAllRows:
    """An inner layer whose draws are mean + sqrt(var) eps at each row, also where draws are joint over rows."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)

    def latent_moments(self, X: tf.Tensor, factors: object, *, full_cov: bool = False) -> Any:
        """Those of each row; and what returns those of all, for `outputs`."""
        return self.layer.latent_moments(X, factors), functools.partial(self.layer.latent_moments, X, factors)

    def outputs(self, X: tf.Tensor, moments: Any, *, full_cov: bool = False, **options: bool) -> MeanAndVariance:
        """As of the layer."""
        of_rows, joint = moments
        layer_moments = joint(full_cov=True) if full_cov else of_rows
        return self.layer.outputs(X, layer_moments, full_cov=full_cov, **options)

    def sample(self, X: tf.Tensor, moments: Any, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """From the moments of each row."""
        return self.layer.sample(X, moments[0], noise)


class PointPredictions(Predictions):
    """Predictions whose inner layers have, in draws and jointly over rows, too, one of the points at all rows."""

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
    ) -> list[tf.Tensor]:
        # All points of the inner layers.
        if len(dims) < len(self.layers):
            return self._integrator.noise(dims, num_draws, 1, seed, dtype)
        # Some of them, and independent draws of the last layer.
        assert isinstance(self.integrator, SigmaPoints)  # of mypy
        chosen = self.integrator.drawn(num_draws, 1 if joint else num_points, tf.random.fold_in(seed, 1), dtype)
        return [*chosen, integrator.noise(dims, num_draws, num_points, seed, dtype)[-1]]

    @property
    def _num_joint(self) -> int:
        return self._integrator.num_components(self._dims[:-1], self.num_samples)

    def jointly(
        self, read: Callable[[list[Step]], Sequence[tf.Tensor]], X: tf.Tensor, *given: Any, **options: Any
    ) -> tuple[tf.Tensor, ...]:
        at_points = dataclasses.replace(self, layers=self._layers_at_points)
        return Predictions.jointly(at_points, read, X, *given, **options)

    @property
    def _layers_at_points(self) -> list[Any]:
        """The layers, of which the inner ones have one point at all rows."""
        return [*map(_AtAllRows, self.layers[:-1]), self.layers[-1]]

    @tf.autograph.experimental.do_not_convert
    def _joint_f(self, X: tf.Tensor, full_output_cov: bool) -> MeanAndVariance:
        """Moments of the mixture, whose components have different weights, one after the other."""
        S = self._num_joint
        dims = self._dims[:-1]
        weights = tf.exp(self._integrator.log_weights(dims, S, X.dtype))
        noise = self._integrator.noise(dims, S, 1, self.seed, X.dtype)
        layers = self._layers_at_points
        points = checked_points(X, layers[0])
        # sum_s w_s cov_s, one point after the other, as each has covariances of all rows.
        means = list[tf.Tensor]()
        total = tf.zeros([], X.dtype)
        for s in range(S):
            factors = self.factors
            if isinstance(factors, Ensemble):
                factors = factors.member(s * factors.size // S)
            steps = propagate(layers, factors, points, [eps[s : s + 1] for eps in noise], full_cov=True)
            mean, cov = steps[-1].outputs(full_cov=True, full_output_cov=full_output_cov)
            means.append(mean[0])
            total += weights[s] * cov[0]
        # Cov[f] = sum_s w_s (cov_s + (mean_s - mean) (mean_s - mean)').
        mean = tf.tensordot(weights, tf.stack(means), axes=1)
        centred = tf.stack(means) - mean
        equation = "s,snp,smq->npmq" if full_output_cov else "s,snp,smp->pnm"
        return mean, total + tf.einsum(equation, weights, centred, centred)


class DeepSigmaPointProcess(DeepGP):
    """A deep GP trained by its predictive density, a mixture over learnt points of the inner layers.

    Everything else is that of `DeepGP`, but for `elbo`, which is the objective above, no bound of the evidence. What is
    predicted for a row, with its density, is the mixture over the points. A drawn function has one of the points, drawn
    by its weight, at all inputs, and so has the predicted distribution at each of them; predictions that are joint over
    rows are the moments of such functions. Points are in units of standard deviations to which the noise between
    layers belongs: functions have it as with `noise="shared"`.

    :param layers: as of `DeepGP`, without latent variables and global inducing outputs.
    :param num_points: number S of points; `integrator` has them.
    :param kl_weight: b, to be chosen by held-out rows: more where there are fewer of them. With b = 1 and less, as in
        the paper, tables of some thousands of rows are learnt by heart.
    :param num_predict_samples: draws of `predict_all_layers`; predictions have one component for each point.
    :raises ValueError: if the layers do not fit, or a number is out of range.
    """

    integrator: SigmaPoints
    is_predictive = True
    _kind_of_predictions = PointPredictions

    def __init__(
        self,
        layers: Sequence[Layer],
        likelihood: Likelihood,
        *,
        num_data: int | None = None,
        num_points: int = NUM_POINTS,
        kl_weight: float = KL_WEIGHT,
        num_predict_samples: int = NUM_PREDICT_SAMPLES,
        prediction_seed: int = 0,
    ) -> None:
        # What this objective cannot have.
        if not 0 <= kl_weight < math.inf:
            raise ValueError(f"kl_weight must be finite and not negative, got {kl_weight}.")
        if has_latents(layers) or is_global(layers):
            raise ValueError(
                "layers of a deep sigma point process must be neither latent variables nor have global inducing "
                "outputs; use DeepGP."
            )
        # The points integrate over the inner layers in training and in predictions.
        points = SigmaPoints([layer.num_latent_gps for layer in layers[:-1]], num_points, layers[0].dtype)
        super().__init__(
            layers,
            likelihood,
            num_data=num_data,
            num_predict_samples=num_predict_samples,
            prediction_seed=prediction_seed,
            integrator=points,
            predict_integrator=points,
        )
        self.kl_weight = kl_weight

    def likelihoods_part(self, data: RegressionData, factors: Factors, draws: Draws) -> tf.Tensor:
        """The log of the predicted density, in the place of its expectation. Parameters as of `bound.elbo`."""
        return predicted_log_density(self, data, factors, draws)

    def _points_of_functions(self, num_functions: int, seed: tf.Tensor) -> list[tf.Tensor]:
        return self.integrator.drawn(num_functions, 1, tf.random.fold_in(seed, 0), self.layers[-1].dtype)
