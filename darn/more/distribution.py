"""A DARN as a distribution over rows of bits: log p(x) and draws as graphs, for TensorFlow Probability and SavedModel.

model.log_prob(x, num_samples=1000)            # nats
model.sample((2, 3), seed=1).x                 # [2, 3, n_x]
model.as_distribution().log_prob(x)
export(model, "folder")                        # tf.saved_model.load("folder").signatures["log_prob"](x=x)
"""

from __future__ import annotations

import functools
import math
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.typing import ArrayLike, NDArray

from darn.model.autoregressive import Conditional, bernoulli_log_prob, log_prob_of_pairs, threshold
from darn.model.config import DARNConfig, check_data
from gpflow_deep_base.runtime.tracing import counted_alone
from gpflow_deep_base.seeds import Seed, as_seed

if TYPE_CHECKING:
    from darn.model.model import DARN

__all__ = [
    "FEW_SAMPLES",
    "MAX_EXACT_UNITS",
    "DARNDistribution",
    "assertions",
    "export",
    "log_joint_of_pairs",
    "log_prob",
    "log_prob_and_effective",
    "log_weights",
    "own_logits",
    "warn_of_few",
    "warning_level",
]


def own_logits(model: DARN, x: tf.Tensor) -> tf.Tensor | None:
    """What the rows x [B, n_x] see of themselves, where the logits given h are a sum of this and of a part of h: for
    :func:`log_joint_of_pairs` and :func:`log_weights`, to which it may be given, so that it is computed once."""
    visible = model.decoders[0].conditional
    return visible.logits(x) if visible.is_additive else None


def log_joint_of_pairs(model: DARN, x: tf.Tensor, h: Sequence[tf.Tensor], own: tf.Tensor | None = None) -> tf.Tensor:
    """log p(x, h) of the rows x [B, n_x] with each of S states h, [S, n_l] each: [S, B], nats.

    With a factorial decoder the logits do not depend on x, and this is one product of matrices.
    """
    visible = model.decoders[0].conditional
    offset = model.visible_offset(h)
    # A factorial decoder: sum_j x_j a_j of all pairs is a product of matrices.
    if model.config.visible_conditional == "factorial":
        a = visible.logits(offset, offset)
        log_p = tf.matmul(a, x, transpose_b=True) - tf.reduce_sum(tf.nn.softplus(a), axis=1)[:, None]
    else:
        log_p = _log_visible_of_pairs(visible, x, tf.expand_dims(offset, 1), own)
    return log_p + model.log_prior(h)[:, None]


def log_weights(
    model: DARN, x: tf.Tensor, noise: Sequence[tf.Tensor], copies: int | tf.Tensor = 1, own: tf.Tensor | None = None
) -> tf.Tensor:
    """log p(x, h) / q(h | x) of the rows x [B, n_x] with `copies` draws of the encoder each, [copies, B].

    :param noise: of `DARN.encoder_noise`, for `copies` B rows.
    """
    # h ~ q(h | x), and log q of it.
    encoded = model.encode(x, noise, threshold, copies)
    shape = [copies, tf.shape(x)[0]]
    log_q = tf.add_n([bernoulli_log_prob(h, a) for h, a in zip(encoded.h, encoded.logits, strict=True)])
    offset = tf.reshape(model.visible_offset(encoded.h), [*shape, -1])
    # w = p(h) p(x | h) / q(h | x).
    log_w = tf.reshape(model.log_prior(encoded.h) - log_q, shape)
    return log_w + _log_visible_of_pairs(model.decoders[0].conditional, x, offset, own)


def _log_visible_of_pairs(visible: Conditional, x: tf.Tensor, offset: tf.Tensor, own: tf.Tensor | None) -> tf.Tensor:
    return log_prob_of_pairs(visible, x, offset) if own is None else bernoulli_log_prob(x, own + offset)


#: Most stochastic units whose 2^16 states are summed.
MAX_EXACT_UNITS = 16

#: Effective samples of a row below which, in the median, an estimate of log p(x) is not trusted.
FEW_SAMPLES = 50.0

_STATES = 64  # at a time; the number of states is a multiple of it, or less
_CALLERS = {"darn", "sklearn", "tensorflow_probability"}


def log_prob(
    model: DARN, x: ArrayLike, num_samples: int = 1000, seed: Seed = 0, *, max_exact_units: int = MAX_EXACT_UNITS
) -> tf.Tensor:
    """log p(x), nats: exact for at most 16 stochastic units, else low by the spread of `num_samples` importance weights
    (Eq. 16); see `importance_log_likelihood` for its interval. [..., n_x] to [...].

    The noise of a sample is that of all rows, so that the value of a row does not depend on the rows beside it.

    :param x: zeros and ones, [..., n_x]. Their values are not checked within a graph.
    :param max_exact_units: sum over all states up to so many stochastic units; 2^16 of them take 20 times as long for a
        row as 1,000 samples.
    :raises ValueError: if x has another width, or values that the model cannot have produced.

    Outside of graphs a warning says if less than 50 of the samples of a row count in the median, or than half of them.
    """
    log_p, effective = log_prob_and_effective(model, x, num_samples, seed, max_exact_units=max_exact_units)
    if not tf.inside_function():
        warn_of_few(effective.numpy(), num_samples)
    return log_p


def log_prob_and_effective(
    model: DARN, x: ArrayLike, num_samples: int = 1000, seed: Seed = 0, *, max_exact_units: int = MAX_EXACT_UNITS
) -> tuple[tf.Tensor, tf.Tensor]:
    """As :func:`log_prob` without its warning, and the effective number of samples of each row, (sum w)^2 / sum w^2;
    infinite where log p(x) is exact."""
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
    _check(x, model.config)
    x = tf.cast(x, model.dtype)
    rows = tf.reshape(x, [-1, model.config.visible])
    exact = model.num_hidden <= max_exact_units
    # Within a graph the operations join it; outside a compiled one is kept with the model.
    if tf.inside_function():
        estimates = _log_prob(model, rows, num_samples, as_seed(seed), exact)
    else:
        run = model.graphs.get(("log_prob", num_samples, exact), lambda: _compiled(model, num_samples, exact))
        estimates = run(rows, as_seed(seed))
    log_p, effective = (tf.reshape(part, tf.shape(x)[:-1]) for part in estimates)
    return log_p, effective


def warn_of_few(effective: NDArray, num_samples: int) -> None:
    """Warn if the median of the effective numbers of samples, (sum w)^2 / sum w^2, is below :data:`FEW_SAMPLES`, or
    half of `num_samples` if that is less."""
    if np.size(effective) and (median := float(np.median(effective))) < min(FEW_SAMPLES, num_samples / 2):
        warnings.warn(
            f"of the {num_samples} importance samples of a row only {median:.1f} count (median): log p(x) is higher "
            "than this says, by an unknown amount; take more samples (num_samples), or a model with at most "
            f"{MAX_EXACT_UNITS} stochastic units, which is exact.",
            stacklevel=warning_level(),
        )


def warning_level() -> int:
    """`stacklevel` of a warning that points to the first line outside of this package and of what calls it in turn."""
    # From the caller outwards; a method of an estimator or a distribution is no line of the user.
    level = 1
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _CALLERS:
        frame = frame.f_back
        level += 1
    return level


def assertions(x: tf.Tensor, config: DARNConfig) -> list[tf.Operation]:
    """Operations that fail if the model cannot have produced x [..., n_x]: what `check_data` is to arrays. XLA leaves
    them out."""
    is_binary = config.observations == "binary"
    is_right = (x == 0) | (x == 1) if is_binary else (x >= 0) & (x <= 1)
    allowed = "0 or 1" if is_binary else "in [0, 1]"
    return [tf.debugging.Assert(tf.reduce_all(is_right), [f"x must be {allowed} everywhere, without NaN, got", x])]


def _check(x: tf.Tensor, config: DARNConfig) -> None:
    """Refuse arrays and tensors of another width than the model's; outside of graphs of other values, too."""
    is_known = not tf.is_symbolic_tensor(x)
    shape = np.shape(x) if is_known else x.shape
    if len(shape) == 0 or shape[-1] not in (config.visible, None):
        raise ValueError(f"x must have {config.visible} columns, one a visible unit, got shape {list(shape)}.")
    if is_known and np.size(x):
        check_data(np.reshape(x, [-1, config.visible]), config, "x")


def _compiled(model: DARN, num_samples: int, exact: bool) -> tf.types.experimental.PolymorphicFunction:
    spec = [tf.TensorSpec([None, model.config.visible], model.dtype), tf.TensorSpec([2], tf.int32)]

    @functools.partial(tf.function, input_signature=spec, autograph=False)
    @counted_alone
    def run(rows: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return _log_prob(model, rows, num_samples, seed, exact)

    return run


def _log_prob(
    model: DARN, rows: tf.Tensor, num_samples: int, seed: tf.Tensor, exact: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """log p(x) and effective numbers of samples, [B]."""
    if exact or not model.config.hidden:
        log_p = _enumerated(model, rows) if model.config.hidden else model.log_visible(rows, ())
        return log_p, tf.fill(tf.shape(log_p), tf.constant(math.inf, log_p.dtype))
    return _sampled(model, rows, num_samples, seed)


def _enumerated(model: DARN, x: tf.Tensor) -> tf.Tensor:
    """log sum_h p(x, h), [B]."""
    total = model.num_hidden
    # States as the binary digits of their numbers, some at a time.
    places = tf.range(total - 1, -1, -1)
    size = min(_STATES, 2**total)
    visible_logits = own_logits(model, x)

    def add(start: tf.Tensor, log_sum: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # log sum_h p(x, h) so far, and of the next states.
        states = tf.bitwise.right_shift((start + tf.range(size))[:, None], places) % 2
        h = tuple(tf.split(tf.cast(states, x.dtype), model.config.hidden, axis=1))
        log_p = log_joint_of_pairs(model, x, h, visible_logits)
        return start + size, tf.reduce_logsumexp(tf.concat([log_sum[None], log_p], 0), axis=0)

    start = tf.zeros_like(x[:, 0]) - math.inf
    return tf.while_loop(lambda done, _: done < 2**total, add, (0, start))[1]


def _sampled(model: DARN, x: tf.Tensor, num_samples: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """log of the mean of p(x, h) / q(h | x) over draws of q, and the effective number of these, [B]."""
    visible_logits = own_logits(model, x)
    num_rows = tf.shape(x)[0]

    def add(s: tf.Tensor, log_sum: tf.Tensor, log_squares: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # One draw: all rows share its noise.
        noise = tuple(
            tf.tile(layer_noise, [num_rows, 1]) for layer_noise in model.encoder_noise(1, tf.random.fold_in(seed, s))
        )
        log_w = log_weights(model, x, noise, own=visible_logits)[0]
        # Running sums of w and of w^2, by their logarithms.
        log_sum = tf.reduce_logsumexp(tf.stack([log_sum, log_w]), axis=0)
        return s + 1, log_sum, tf.reduce_logsumexp(tf.stack([log_squares, 2.0 * log_w]), axis=0)

    start = tf.zeros_like(x[:, 0]) - math.inf
    _, log_sum, log_squares = tf.while_loop(lambda s, *_: s < num_samples, add, (0, start, start))
    return log_sum - math.log(num_samples), tf.exp(2.0 * log_sum - log_squares)


class DARNDistribution(tfp.distributions.Distribution):
    """A DARN as a distribution of TensorFlow Probability: event shape [n_x], no batch shape.

    :param num_samples: of :func:`log_prob`, for more than 16 stochastic units.
    :param seed: of these.
    :param validate_args: also check values within graphs.
    """

    def __init__(
        self,
        model: DARN,
        num_samples: int = 1000,
        seed: int = 0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DARN",
    ) -> None:
        parameters = dict(locals())
        super().__init__(
            dtype=model.dtype,
            reparameterization_type=tfp.distributions.NOT_REPARAMETERIZED,
            validate_args=validate_args,
            allow_nan_stats=allow_nan_stats,
            parameters=parameters,
            name=name,
        )
        self.model = model
        self.num_samples = num_samples
        self._noise_seed = seed

    @classmethod
    def _parameter_properties(cls, dtype: object, num_classes: object = None) -> dict[str, object]:
        return {}

    def _event_shape(self) -> tf.TensorShape:
        return tf.TensorShape([self.model.config.visible])

    def _event_shape_tensor(self) -> tf.Tensor:
        return tf.constant([self.model.config.visible])

    def _batch_shape(self) -> tf.TensorShape:
        return tf.TensorShape([])

    def _batch_shape_tensor(self) -> tf.Tensor:
        return tf.constant([], tf.int32)

    def _sample_control_dependencies(self, x: tf.Tensor) -> list[tf.Operation]:
        return assertions(x, self.model.config) if self.validate_args else []

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        return log_prob(self.model, value, self.num_samples, self._noise_seed)

    def _sample_n(self, n: tf.Tensor, seed: object = None) -> tf.Tensor:
        return self.model.sample(n, tfp.random.sanitize_seed(seed)).x


def export(model: DARN, path: str | os.PathLike[str], num_samples: int = 1000) -> None:
    """Write a SavedModel, which needs nothing of this package to be loaded.

    Its signatures are "log_prob", from x [B, n_x] of the model's dtype to "log_prob" [B] in nats, see :func:`log_prob`;
    and "sample", from num [] and seed [2], int32, to "x" [num, n_x].

    :param num_samples: of :func:`log_prob`.
    """
    # The module holds the model, so that its variables are saved.
    module = tf.Module()
    module.model = model
    rows = tf.TensorSpec([None, model.config.visible], model.dtype, name="x")
    specs = [tf.TensorSpec([], tf.int32, name="num"), tf.TensorSpec([2], tf.int32, name="seed")]

    @tf.function(input_signature=[rows], autograph=False)
    def score(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"log_prob": log_prob(model, x, num_samples)}

    @tf.function(input_signature=specs, autograph=False)
    def draw(num: tf.Tensor, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"x": model.sample(num, seed).x}

    tf.saved_model.save(module, os.fspath(path), signatures={"log_prob": score, "sample": draw})
