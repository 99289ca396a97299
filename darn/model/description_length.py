"""The description length that a DARN minimises (Gregor et al., 2014, Section 3, Eqs. 11-15).

A sender codes h with p(h), then x with p(x | h), and gets back the bits with which h was chosen:

    L(x | h) = -log2 p(x | h)                                                   (11)
    L(h)     = -log2 p(h) + log2 q(h | x)                                       (13)
    L(x)     = E_q[log2 q(h | x) - log2 p(h) - log2 p(x | h)] >= -log2 p(x)     (14), (15)

The paper's Eqs. (11)-(14) have lost their minus signs in print. Everything is computed in nats and converted at the
end.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray

from darn.model.autoregressive import threshold
from darn.model.model import DARN, check_data
from gpflow_deep_base.runtime.tracing import counted_alone
from gpflow_deep_base.seeds import Seed, as_seed

__all__ = ["DescriptionLength", "code_lengths", "description_length", "fast_sampling_cost", "row_width"]

_CHUNK_NUMBERS = 2**24  # float numbers of the largest intermediate result of one call


class DescriptionLength(NamedTuple):
    """Expected code lengths of each row, [N], in the unit that was asked for.

    :ivar total: L(x).
    :ivar hidden: E[-log p(h)].
    :ivar bits_back: E[log q(h | x)], negative.
    :ivar visible:
        E[-log p(x | h)]. total = hidden + bits_back + visible.
    """

    total: NDArray[np.float64]
    hidden: NDArray[np.float64]
    bits_back: NDArray[np.float64]
    visible: NDArray[np.float64]

    @property
    def kl(self) -> NDArray[np.float64]:
        """What the stochastic units carry of each row: E[log q(h | x) - log p(h)] = KL(q(h | x) || p(h)), [N]."""
        return self.hidden + self.bits_back


def code_lengths(model: DARN, x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """-log p(h), log q(h | x) and -log p(x | h) for one draw h ~ q(h | x), [B] each, nats; without checks.

    :param x: [B, n_x] in the model's dtype.
    :param seed: int32 [2].
    """
    # h ~ q(h | x), coded with p(h), then x with p(x | h), Eq. (11).
    encoded = model.encode(x, model.encoder_noise(tf.shape(x)[0], seed), threshold)
    visible = -model.log_visible(x, encoded.h)
    if not encoded.h:
        return tf.zeros_like(visible), tf.zeros_like(visible), visible
    # Eq. (13): the choice of h gives log q(h | x) back.
    return -model.log_prior(encoded.h), model.log_q(x, encoded.h), visible


def description_length(
    model: DARN,
    x: ArrayLike,
    *,
    seed: Seed,
    num_samples: int = 1,
    unit: str = "nats",
    batch_size: int | None = None,
) -> DescriptionLength:
    """The expected description length of each row and its parts, Eqs. (12)-(15), by `num_samples` draws of h.

    :param x: [N, n_x].
    :param unit: "nats" or "bits".
    :raises ValueError: for data that the model cannot have produced (see `check_data`), or an unknown unit.
    """
    if unit not in ("nats", "bits"):
        raise ValueError(f"unit must be 'nats' or 'bits', got {unit!r}.")
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
    rows = check_data(x, model.config, "x")
    seed = as_seed(seed)
    batch_size = batch_size or max(1, min(len(rows), _CHUNK_NUMBERS // row_width(model)))
    # Sums over draws of h of the three code lengths, block by block.
    run = compiled_code_lengths(model)
    scale = 1.0 / math.log(2.0) if unit == "bits" else 1.0
    parts = np.zeros([3, len(rows)])
    for sample in range(num_samples):
        for start in range(0, len(rows), batch_size):
            batch = tf.constant(rows[start : start + batch_size], model.dtype)
            key = tf.random.fold_in(tf.random.fold_in(seed, sample), start)
            parts[:, start : start + batch_size] += run(batch, key).numpy()
    # Eq. (15): L(x) = E[-log p(h) + log q(h | x) - log p(x | h)].
    hidden, bits_back, visible = scale * parts / num_samples
    return DescriptionLength(hidden + bits_back + visible, hidden, bits_back, visible)


def compiled_code_lengths(model: DARN) -> tf.types.experimental.PolymorphicFunction:
    """`code_lengths` of a model as a graph that is kept with the model: (x [B, n_x], seed [2]) to [3, B]."""
    spec = (tf.TensorSpec([None, model.config.visible], model.dtype), tf.TensorSpec([2], tf.int32))

    def make() -> tf.types.experimental.PolymorphicFunction:
        @functools.partial(tf.function, input_signature=spec, autograph=False)
        @counted_alone
        def run(x: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return tf.stack(code_lengths(model, x, seed))

        return run

    return model.graphs.get("code lengths", make)


def fast_sampling_cost(model: DARN, seed: Seed, num_samples: int = 1000) -> tuple[float, float]:
    """Multiplications for one sample of an fDARN, n_s (n_h + n_x), and the mean number n_s of active units (Sec. 2.3).

    Only units that are 1 contribute to the units after them. For one stochastic layer, a linear prior and a decoder
    without deterministic units or autoregression.

    :raises ValueError: for another model.
    """
    # The model must be the paper's fDARN.
    config = model.config
    if len(config.hidden) != 1 or config.units or config.prior != "linear" or config.local is not None:
        raise ValueError(
            "the cost n_s (n_h + n_x) holds for one stochastic layer, a linear prior and no deterministic units, got "
            f"hidden={config.hidden}, units={config.units}, prior={config.prior!r}."
        )
    if config.visible_conditional != "factorial":
        raise ValueError(f"fDARN has a factorial decoder, got visible_conditional={config.visible_conditional!r}.")
    # n_s: units that are 0 add nothing to the sums of later units, and cost nothing.
    active = float(tf.reduce_mean(tf.reduce_sum(model.prior.sample(num_samples, seed), axis=-1)))
    return active * (config.hidden[0] + config.visible), active


def row_width(model: DARN) -> int:
    """Numbers that one row needs in the widest layer, roughly."""
    config = model.config
    kinds = {config.prior, config.visible_conditional} & {"nade", "eonade"}
    widest = max(config.visible, *config.hidden, 1) * (config.conditional_units if kinds else 1)
    if config.local is not None:
        widest = max(widest, 16 * config.visible, *(config.local.units_kernel**2 * n for n in config.local.hidden))
    if config.pixelcnn is not None:
        widest = max(widest, 8 * config.pixelcnn.filters * config.visible)
    return int(widest)
