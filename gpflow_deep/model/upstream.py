"""The private names of GPflow and TensorFlow that this package uses, all in one place; its test says when they change.

* `MonteCarloLikelihood._mc_quadrature` takes its noise from TensorFlow's global generator. Its last argument lets one
  hand in the noise, but the methods that call it do not.
* `Ordinal` has infinite outer bin edges, for which `erf` gives NaN in float64 on some processors. `FiniteOrdinal` is
  the same with large finite ones, in place of `Ordinal._scalar_log_prob` and `Ordinal._make_phi`.
* `Softmax` uses a cross-entropy that TensorFlow has for a GPU in float32 only. `DenseSoftmax` is the same by one that
  it has in float64, too; used where there is a GPU, as its last digits on a CPU are others.
* `HeteroskedasticTFPConditional` keeps its distribution class in a variable of a function inside its constructor.
* A `tf.Module` keeps what it tracks for checkpoints in attributes with a prefix.
* `gpflow.set_trainable` sets `_trainable` of a distributed variable, but TensorFlow asks the variable's copies.
* A Keras variable makes its TensorFlow variable itself; `_initialize` is how it takes one that is there already.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial

import tensorflow as tf
from gpflow.config import default_float, default_int
from gpflow.likelihoods import (
    HeteroskedasticTFPConditional,
    Likelihood,
    MonteCarloLikelihood,
    Ordinal,
    Softmax,
    SwitchedLikelihood,
)

__all__ = [
    "REPAIRED",
    "TRACKING_PREFIX",
    "DenseSoftmax",
    "Epsilon",
    "FiniteOrdinal",
    "distribution_class",
    "mark_copies",
    "repaired",
    "take_variable",
]

#: Of the attributes by which TensorFlow tracks the others of a module.
TRACKING_PREFIX = "_self_"

#: Stands for infinity among the bin edges of an ordinal likelihood, in units of its sigma.
OUTER_EDGE = 1e10

Epsilon = Callable[[int, tf.Tensor, tf.Tensor], tf.Tensor]
"""Standard-normal noise [K, rows or 1, P] of K draws at means [rows, P], from a seed [2]: (K, means, seed) -> noise."""


REPAIRED = (Ordinal, MonteCarloLikelihood, SwitchedLikelihood)
"""Likelihoods of which :func:`repaired` may make a view; it gives all others back as they are."""


def repaired(likelihood: Likelihood, seed: tf.Tensor, epsilon: Epsilon) -> Likelihood:
    """The likelihood itself, or a view of it (same parameters) with finite ordinal bins and noise from `epsilon`.

    :param seed: int32 [2]; the parts of a switched likelihood have seeds of their own.
    """
    # What the view has in the place of the likelihood's own.
    changes: dict[str, object] = {}
    if isinstance(likelihood, Ordinal):
        changes["__class__"] = FiniteOrdinal
    elif isinstance(likelihood, MonteCarloLikelihood):
        changes["_mc_quadrature"] = partial(_mc_quadrature, likelihood, seed, epsilon)
        if type(likelihood) is Softmax and tf.config.list_logical_devices("GPU"):
            changes["__class__"] = DenseSoftmax
    elif isinstance(likelihood, SwitchedLikelihood):
        parts = [repaired(part, tf.random.fold_in(seed, i), epsilon) for i, part in enumerate(likelihood.likelihoods)]
        if any(new is not old for new, old in zip(parts, likelihood.likelihoods, strict=True)):
            changes["likelihoods"] = parts
    if not changes:
        return likelihood
    view = copy.copy(likelihood)
    for name, value in changes.items():
        object.__setattr__(view, name, value)  # not by tf.Module's, which would record it for the original too
    return view


def _mc_quadrature(
    likelihood: MonteCarloLikelihood,
    seed: tf.Tensor,
    epsilon_of: Epsilon,
    funcs: Callable[..., tf.Tensor] | Iterable[Callable[..., tf.Tensor]],
    Fmu: tf.Tensor,
    Fvar: tf.Tensor,
    logspace: bool = False,
    epsilon: tf.Tensor | None = None,
    **Ys: tf.Tensor,
) -> tf.Tensor:
    """`MonteCarloLikelihood._mc_quadrature` with noise that is a function of `seed`."""
    epsilon = epsilon_of(likelihood.num_monte_carlo_points, Fmu, seed) if epsilon is None else epsilon
    return likelihood._mc_quadrature(funcs, Fmu, Fvar, logspace=logspace, epsilon=epsilon, **Ys)


class FiniteOrdinal(Ordinal):
    """`Ordinal` with the outermost edges at +-OUTER_EDGE sigma; its formulas, without infinities."""

    def _scaled_edges(self) -> tf.Tensor:
        outer = tf.constant([OUTER_EDGE], dtype=default_float())
        inner = tf.cast(self.bin_edges, default_float()) / self.sigma
        return tf.concat([-outer, inner, outer], axis=0)

    def _scalar_log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        edges = self._scaled_edges()
        label = tf.cast(Y, default_int())
        # The probability between the edges of the bin; as in GPflow, 1e-6 more keeps the log finite.
        upper = _inverse_probit(tf.gather(edges, label + 1) - F / self.sigma)
        lower = _inverse_probit(tf.gather(edges, label) - F / self.sigma)
        return tf.math.log(upper - lower + 1e-6)

    def _make_phi(self, F: tf.Tensor) -> tf.Tensor:
        below = _inverse_probit(self._scaled_edges() - tf.reshape(F, (-1, 1)) / self.sigma)
        return below[:, 1:] - below[:, :-1]


class DenseSoftmax(Softmax):
    """`Softmax` with operations that a GPU has in float64; NaN for a label that is no class, as there in float32."""

    def _log_prob(self, X: tf.Tensor, F: tf.Tensor, Y: tf.Tensor) -> tf.Tensor:
        label = tf.one_hot(Y[:, 0], self.num_classes, dtype=F.dtype)
        return -tf.nn.softmax_cross_entropy_with_logits(label, F) / tf.reduce_sum(label, axis=-1)


def _inverse_probit(x: tf.Tensor) -> tf.Tensor:
    """GPflow's inverse probit, which keeps 1e-3 away from 0 and 1."""
    jitter = 1e-3
    return 0.5 * (1.0 + tf.math.erf(x / math.sqrt(2.0))) * (1 - 2 * jitter) + jitter


def distribution_class(likelihood: HeteroskedasticTFPConditional) -> type | None:
    """The first argument of the likelihood's constructor; None if it has another `conditional_distribution` now."""
    # A variable of the function that the constructor makes.
    function = inspect.unwrap(likelihood.conditional_distribution)
    return inspect.getclosurevars(function).nonlocals.get("distribution_class")


def mark_copies(model: tf.Module) -> None:
    """What `gpflow.set_trainable` said of distributed variables also for their copies on the replicas."""
    # The copies that TensorFlow asks are the values of a distributed variable.
    for variable in model.variables:
        if isinstance(variable, tf.distribute.DistributedValues) and "_trainable" in vars(variable):
            for copy_of_it in variable.values:
                copy_of_it._trainable = variable._trainable


def take_variable(keras_variable: tf.keras.Variable, variable: tf.Variable) -> None:
    """Let a Keras variable be this TensorFlow variable."""
    keras_variable._initialize(variable)
