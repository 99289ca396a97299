"""A deep GP whose inner layers are integrated by Gauss-Hermite quadrature."""

from __future__ import annotations

from collections.abc import Sequence

from gpflow.likelihoods import Likelihood

from ..layers.protocol import Layer
from .deep_gp import NUM_PREDICT_SAMPLES, DeepGP
from .quadrature import GaussHermite

__all__ = ["DeepGPQuad"]


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
