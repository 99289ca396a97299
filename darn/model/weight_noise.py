"""Adaptive weight noise (Graves, 2011; used in Section 5.2 of Gregor et al., 2014).

Weights are drawn anew at each step, w ~ N(mu, sigma^2), and the objective is

    E[description length] + KL / N,    KL = sum log(s / sigma) + (sigma^2 + (mu - m)^2) / (2 s^2) - 1/2,

with one prior N(m, s^2) for each weight matrix or bias vector, whose best m = mean(mu) and s^2 = mean(sigma^2 + (mu -
m)^2) are known in closed form. With g the gradient of the description length at the drawn weights,

    d / d mu      = g + (mu - m) / (N s^2)
    d / d sigma^2 = B g^2 / 2 + (1 / s^2 - 1 / sigma^2) / (2 N)          "graves": B g^2 for the Hessian's diagonal
                  = g eps / (2 sigma) + (1 / s^2 - 1 / sigma^2) / (2 N)  "reparameterised": w = mu + sigma eps

Graves squares the gradient of one example. The mean gradient of a minibatch of B has, where the whole gradient is
small, a mean square B times smaller, hence the factor.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import tensorflow as tf

__all__ = ["WEIGHT_NOISE", "GaussianPrior", "Kind", "WeightNoise", "fit_prior", "with_values"]

Module = TypeVar("Module", bound=tf.Module)


def with_values(module: Module, variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> Module:
    """What `module` would be if its `variables` had these values; neither it nor they are changed.

    :param variables: of `module` or of the modules in it.
    :param values: of their shapes and dtypes.
    :return: modules of the same classes, which hold `values` in place of `variables` and share all else.
    :raises ValueError: if the numbers of variables and values differ.
    """
    replacements = {variable.ref(): value for variable, value in zip(variables, values, strict=True)}
    return _replaced(module, replacements)


def _replaced(part: object, of: Mapping[Hashable, tf.Tensor]) -> Any:
    # Variables are replaced and modules that may hold some copied; all else is shared.
    if isinstance(part, tf.Variable):
        return of.get(part.ref(), part)
    if isinstance(part, list | tuple):
        return [_replaced(inner, of) for inner in part]
    if not isinstance(part, tf.Module):
        return part
    view = copy.copy(part)
    for name, inner in vars(part).items():
        if not name.startswith("_") and isinstance(inner, tf.Variable | tf.Module | list):
            view.__dict__[name] = _replaced(inner, of)  # not by attribute: TensorFlow would track it
    return view


Kind = Literal["graves", "reparameterised"]
WEIGHT_NOISE: tuple[str, ...] = get_args(Kind)


class GaussianPrior(NamedTuple):
    """Mean and variance of a prior, []."""

    mean: tf.Tensor
    variance: tf.Tensor


def fit_prior(mu: tf.Tensor, variance: tf.Tensor) -> GaussianPrior:
    """The prior with the least KL for weights N(mu, variance)."""
    # The moments of all weights together: what d KL / d m = d KL / d s^2 = 0 gives.
    mean = tf.reduce_mean(mu)
    return GaussianPrior(mean, tf.reduce_mean(variance + tf.square(mu - mean)))


class WeightNoise(tf.Module):
    """Variances of the weights of a model, whose own variables hold the means.

    :ivar log_variances: variables of the shapes of `variables`.

    :param variables: the model's trainable variables.
    :param initial_std: sigma at the start.
    :param kind: "graves" or "reparameterised".
    :raises ValueError: if the kind is not known or initial_std not positive.
    """

    def __init__(
        self, variables: Sequence[tf.Variable], *, initial_std: float = 0.01, kind: str = "graves", name: str = "noise"
    ) -> None:
        super().__init__(name=name)
        if kind not in WEIGHT_NOISE:
            raise ValueError(f"weight noise must be one of {', '.join(WEIGHT_NOISE)}, got {kind!r}.")
        if not initial_std > 0:
            raise ValueError(f"initial_std must be positive, got {initial_std}.")
        self.kind = kind
        self.variables_ = tuple(variables)
        start = 2.0 * tf.math.log(tf.constant(initial_std, tf.float64))
        self.log_variances = [
            tf.Variable(tf.fill(v.shape, tf.cast(start, v.dtype)), name="log_variance") for v in variables
        ]

    def draw(self, seed: tf.Tensor) -> list[tf.Tensor]:
        """Standard normal eps of the shapes of the variables.

        :param seed: int32 [2].
        """
        seeds = tf.unstack(tf.random.experimental.stateless_split(seed, len(self.variables_)))
        return [
            tf.random.stateless_normal(v.shape, key, dtype=v.dtype)
            for v, key in zip(self.variables_, seeds, strict=True)
        ]

    def perturbed(self, eps: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """mu + sigma eps."""
        return [v + tf.exp(0.5 * rho) * e for v, rho, e in zip(self.variables_, self.log_variances, eps, strict=True)]

    def kl(self) -> tf.Tensor:
        """KL of the weights' distribution from its best prior, [], nats."""
        total = []
        for mu, rho in zip(self.variables_, self.log_variances, strict=True):
            variance = tf.exp(rho)
            prior = fit_prior(mu, variance)
            # KL(N(mu, sigma^2) || N(m, s^2)) = (log(s^2 / sigma^2) + (sigma^2 + (mu - m)^2) / s^2 - 1) / 2 a weight.
            quadratic = (variance + tf.square(mu - prior.mean)) / prior.variance
            total.append(0.5 * tf.reduce_sum(tf.math.log(prior.variance) - rho + quadratic - 1.0))
        return tf.add_n(total)

    def gradients(
        self, mu: Sequence[tf.Tensor], g: Sequence[tf.Tensor], eps: Sequence[tf.Tensor], num_data: int, batch_size: int
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Gradients of the objective with respect to the means and to the log-variances.

        :param mu: means.
        :param g: gradients of the mean description length at the drawn weights.
        :param eps: what `draw` gave.
        :param num_data: rows of the data, N.
        :param batch_size: rows of a step, B.
        """
        d_mean = []
        d_log_variance = []
        for mean, gradient, e, rho in zip(mu, g, eps, self.log_variances, strict=True):
            variance = tf.exp(rho)
            prior = fit_prior(mean, variance)
            # d / d mu = g + (mu - m) / (N s^2).
            d_mean.append(gradient + (mean - prior.mean) / (num_data * prior.variance))
            # The part of the data in d / d log sigma^2 = sigma^2 d / d sigma^2, Graves's or by reparameterisation.
            if self.kind == "graves":
                data_part = 0.5 * batch_size * variance * tf.square(gradient)
            else:
                data_part = 0.5 * tf.sqrt(variance) * gradient * e
            # The part of the KL: (sigma^2 / s^2 - 1) / (2 N).
            d_log_variance.append(data_part + (variance / prior.variance - 1.0) / (2.0 * num_data))
        return d_mean, d_log_variance
