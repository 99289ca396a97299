"""What a `DeepGP` asks of a layer: six attributes and six methods.

    factors()                                    what does not depend on the inputs, once per set of parameters
    latent_moments(X, factors) -> moments        the distribution of the outputs at X, whatever its form
    sample(X, moments, noise)  -> [S, N, P]      a draw of the outputs as a function of standard-normal noise, Eq. (15)
    outputs(X, moments)        -> mean, cov      their mean and covariance
    prior_kl(factors)          -> nats           the layer's term of the last sum of Eq. (17)
    cache()                                      as `factors`, for many predictions with the same parameters

A layer is a `tf.Module`, so that TensorFlow finds its variables. It reads inputs [N, D], the same for all draws, or
[S, N, D], those of S draws of the layer below.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import tensorflow as tf
from gpflow.likelihoods import Likelihood, SwitchedLikelihood

__all__ = ["Factors", "Layer", "check_layers", "check_likelihood"]

Factors = Sequence[Any]
"""What `factors` or `cache` of each layer returned, first layer first."""


class Layer(Protocol):
    """One layer of a `DeepGP`: a `tf.Module` with these members.

    Shapes: N rows, S draws, D = `input_dim`, P = `output_dim`, L = `num_latent_gps`.
    """

    label: str
    """What error messages call the layer; a `DeepGP` sets it to "layer 2 of 3"."""

    @property
    def dtype(self) -> tf.DType:
        """Float type of inputs and outputs."""

    @property
    def input_dim(self) -> int | None:
        """Number D of input columns; None if any number will do."""

    @property
    def output_dim(self) -> int:
        """Number P of output columns."""

    @property
    def num_latent_gps(self) -> int:
        """Number L of standard-normal numbers that a draw takes for each row; 0 for a deterministic layer."""

    @property
    def floats_per_row(self) -> int:
        """About how many numbers the largest array of `latent_moments` has for each row: bounds what predictions do at
        a time."""

    def factors(self) -> Any:
        """What the methods below need and no inputs enter, such as Cholesky factors: nested tuples of tensors."""

    def cache(self, *, dtype: tf.DType | None = None) -> Any:
        """The same in a form that is faster for many rows, with tensors only (a posterior keeps them in variables).

        :param dtype: float32 for a faster form, where the layer has one; the layer's float type if None.
        """

    def prior_kl(self, factors: Any) -> tf.Tensor:
        """KL divergence of the layer's variational distribution from its prior, [], nats."""

    def latent_moments(self, X: tf.Tensor, factors: Any, *, full_cov: bool = False) -> Any:
        """What `outputs` and `sample` need to know of the distribution at X.

        :param X: [N, D] or [S, N, D].
        :param factors: what `factors()` or `cache()` returned.
        :param full_cov: jointly over the N rows (of the same s).
        """

    def outputs(
        self, X: tf.Tensor, moments: Any, *, full_cov: bool = False, full_output_cov: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean [..., N, P] and variance [..., N, P] of the outputs; or covariance [..., P, N, N] with `full_cov`,
        [..., N, P, P] with `full_output_cov`, [..., N, P, N, P] with both.

        :param moments: what `latent_moments(X, factors, full_cov=full_cov)` returned.
        """

    def sample(self, X: tf.Tensor, moments: Any, noise: tf.Tensor, *, full_cov: bool = False) -> tf.Tensor:
        """Outputs as a function of noise: [S, N, P], or [1, N, P] where neither X nor the outputs differ between draws.

        :param moments: what `latent_moments(X, factors, full_cov=full_cov)` returned.
        :param noise: [S, N, L], or [S, 1, L] for noise that the N rows share.
        :param full_cov: with noise [S, N, L], draws that are joint over the N rows.
        """


MEMBERS = sorted({*Layer.__annotations__, *(name for name in vars(Layer) if not name.startswith("_"))})


def check_likelihood(likelihood: Likelihood) -> None:
    """Refuse what is no likelihood, such as the class or the name of one."""
    if not isinstance(likelihood, Likelihood):
        raise ValueError(f"likelihood must be one of gpflow.likelihoods, such as Gaussian(), got {likelihood!r}.")


def check_layers(layers: Sequence[Layer], likelihood: Likelihood) -> None:
    """Refuse layers that do not fit one another or the likelihood.

    :raises ValueError: naming the layer.
    """
    check_likelihood(likelihood)
    if not layers:
        raise ValueError("layers must have at least one layer, such as an SVGPLayer, got none.")
    # Each by itself, and then whether it fits the next one.
    for number, layer in enumerate(layers, start=1):
        _check_members(layer, number)
    if len({id(layer) for layer in layers}) < len(layers):
        raise ValueError("layers must be different objects, got the same layer twice; use copy.deepcopy.")
    for number, (layer, following) in enumerate(pairwise(layers), start=1):
        if following.input_dim is not None and following.input_dim != layer.output_dim:
            raise ValueError(
                f"layer {number + 1} must take the {layer.output_dim} outputs of layer {number}, but it takes "
                f"{following.input_dim} columns (a GP layer as many as its inducing inputs have)."
            )
    dtypes = {layer.dtype.name for layer in layers}
    if len(dtypes) > 1:
        raise ValueError(f"all layers must have one float type, got {sorted(dtypes)}.")
    needed = None if isinstance(likelihood, SwitchedLikelihood) else likelihood.latent_dim
    if needed not in (None, layers[-1].output_dim):
        raise ValueError(
            f"the last layer must have the {needed} outputs that {type(likelihood).__name__} takes, got "
            f"{layers[-1].output_dim}."
        )


def _check_members(layer: Layer, number: int) -> None:
    name = type(layer).__name__
    if not isinstance(layer, tf.Module):
        raise ValueError(
            f"layers must be tf.Modules with the members of gpflow_deep.Layer, got {name} as layer {number}."
        )
    if lacking := [member for member in MEMBERS if not hasattr(layer, member)]:
        raise ValueError(
            f"layers must have the members of gpflow_deep.Layer, but {name} as layer {number} lacks "
            f"{', '.join(lacking)}."
        )
