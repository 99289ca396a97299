"""Deep sigma point processes (Jankowiak, Pleiss and Gardner, "Deep Sigma Point Processes", UAI 2020): layers of a deep
GP, trained by the density that they predict.

    p(y | x) = sum_s w_s p(y | x, eps_s),    f^l = mean_l(f^{l-1}) + sqrt(var_l(f^{l-1})) eps_s^l

Points eps_s and weights w_s are parameters, the same for all rows. The last layer is integrated out. What is maximised
is no bound of the evidence but (their Section 3)

    sum_n log p(y_n | x_n) - b KL[q || p]

in which variances of the layers explain the data as the noise of the likelihood does: the density may be wider at one
input than at another, and no normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import gpflow
import tensorflow as tf
from gpflow.likelihoods import Likelihood

from .deep_gp import NUM_PREDICT_SAMPLES, DeepGP
from .importance import has_latents
from .layers.global_inducing import is_global
from .layers.protocol import Layer
from .quadrature import Sobol, as_seed

__all__ = ["KL_WEIGHT", "NUM_POINTS", "DeepSigmaPointProcess", "SigmaPoints"]

#: Sigma points, and the weight b of the KL, unless they are given.
NUM_POINTS, KL_WEIGHT = 8, 5.0


class SigmaPoints(tf.Module):
    """An `Integrator` whose nodes and weights are learnt; nodes are shared by all rows.

    They start at Sobol points with mean 0 and covariance I, equally weighted.

    :ivar points: of each inner layer, parameters [S, L]. :ivar logits: of the weights, parameter [S].

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


class DeepSigmaPointProcess(DeepGP):
    """A deep GP trained by its predictive density, a mixture over learnt points of the inner layers.

    Everything else is that of `DeepGP`, but for `elbo`, which is the objective above, no bound of the evidence. What is
    predicted for a row, with its density, is the mixture over the points. Draws of functions and predictions that are
    joint over rows take the inner layers as Gaussian, as in `DeepGP`, since the points say nothing about several rows.

    :param layers: as of `DeepGP`, without latent variables and global inducing outputs.
    :param num_points: number S of points; `integrator` has them.
    :param kl_weight: b, to be chosen by held-out rows: more where there are fewer of them. With b = 1 and less, as in
        the paper, tables of some thousands of rows are learnt by heart.
    :param num_predict_samples: draws of joint predictions.
    :raises ValueError: if the layers do not fit, or a number is out of range.
    """

    _is_predictive = True

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
        if not 0 <= kl_weight < math.inf:
            raise ValueError(f"kl_weight must be finite and not negative, got {kl_weight}.")
        if has_latents(layers) or is_global(layers):
            raise ValueError(
                "layers of a deep sigma point process must be neither latent variables nor have global inducing "
                "outputs; use DeepGP."
            )
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
