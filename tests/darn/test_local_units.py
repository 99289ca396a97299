"""Stochastic layers that are grids: what units see, the whole model by enumeration, the codec."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from darn import DARN, DARNConfig, LocalConfig, decode, encode, exact_log_likelihood, load_darn, save_darn
from darn.images.local import LocalUnitsConditional
from darn.model.autoregressive import logistic_noise, threshold
from darn.model.description_length import description_length
from darn.train.training import Trainer, TrainingConfig
from tests.darn.rows import every_row

STACK = LocalConfig((2, 4), (3, 2), (1, 2), (1, 2), period=2, visible_kernel=3, visible_period=2, stochastic=True)
"""8 pixels, 8 units at 2 x 4 places, 4 units at 1 x 2 places."""


def random(module: tf.Module, seed: tf.Tensor) -> None:
    for i, variable in enumerate(module.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign(0.5 * tf.random.stateless_normal(variable.shape, key, dtype=variable.dtype))


@pytest.mark.parametrize(("kernel", "period"), [(1, 1), (3, 2), (5, 3)])
def test_units_see_the_earlier_units_of_their_window(kernel: int, period: int, seed: tf.Tensor) -> None:
    H, W, C = 3, 4, 2
    units = LocalUnitsConditional((H, W, C), kernel=kernel, period=period, dtype=tf.float64)
    random(units, seed)
    changes = units.logits(tf.eye(H * W * C, dtype=tf.float64)) - units.logits(tf.zeros([1, H * W * C], tf.float64))
    weights, expected = units.layer.weights.numpy().reshape(period, period, kernel, kernel, C, C), {}
    for i, j, c in itertools.product(range(H), range(W), range(C)):
        for u, v, d in itertools.product(range(kernel), range(kernel), range(C)):
            r, s = i + u - kernel // 2, j + v - kernel // 2
            if 0 <= r < H and 0 <= s < W and (r, s, d) < (i, j, c):
                expected[(r * W + s) * C + d, (i * W + j) * C + c] = weights[i % period, j % period, u, v, d, c]
    matrix = np.zeros(changes.shape)
    for place, weight in expected.items():
        matrix[place] = weight
    np.testing.assert_allclose(changes, matrix, atol=1e-12)
    noise = logistic_noise([20, units.n], seed, tf.float64)
    h = units.sample_from_noise(noise)
    np.testing.assert_array_equal(h, threshold(units.logits(h), noise))


def stack(seed: tf.Tensor) -> DARN:
    """Three stochastic layers as in Figure 5, the top one dense."""
    config = DARNConfig(8, (*STACK.hidden, 1), visible_conditional="local", local=STACK, dtype="float64")
    model = DARN(config, seed=seed)
    random(model, seed)
    return model


def test_the_stack_is_a_distribution(seed: tf.Tensor, tmp_path: Path) -> None:
    """Over images by enumeration of all 13 units; h^1 depends on h^2 through the transposed layer alone."""
    model = stack(seed)
    assert model.config.hidden == (8, 4, 1)
    x = every_row(8)
    exact = exact_log_likelihood(model, x)
    np.testing.assert_allclose(np.exp(exact).sum(), 1.0, rtol=1e-10)
    assert description_length(model, x, seed=seed).total.mean() > -exact.mean()
    save_darn(model, tmp_path / "darn.npz")
    again = load_darn(tmp_path / "darn.npz")
    assert again.config == model.config
    np.testing.assert_array_equal(
        description_length(again, x, seed=1).total, description_length(model, x, seed=1).total
    )


def test_the_stack_codes(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model, x = stack(seed), rng.integers(0, 2, (50, 8)).astype(np.uint8)
    np.testing.assert_array_equal(decode(model, encode(model, x)), x)


@pytest.mark.slow
@pytest.mark.ci
def test_training_shortens_the_description(rng: np.random.Generator) -> None:
    x = np.repeat(rng.integers(0, 2, (300, 2)), 4, axis=1).astype(np.uint8)  # two bits an image: 1.39 nats
    config = DARNConfig(8, (*STACK.hidden, 1), visible_conditional="local", local=STACK)
    trainer = Trainer(DARN(config, data=x), TrainingConfig(learning_rate=0.02), num_data=len(x))
    before = description_length(trainer.model, x, seed=1).total.mean()
    trainer.advance(x, rng.integers(0, len(x), (150, 50)), 1)
    after = description_length(trainer.model, x, seed=1).total.mean()
    assert after < 3.0 < 5.0 < before


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden": (5,)}, "hidden must begin with the units of the local layers, 8, 4, got"),
        ({"hidden": (8, 4), "skip": True}, "leave out skip"),
        ({"hidden": (8, 4), "encoder": "linear"}, "factorial encoder"),
    ],
)
def test_what_does_not_fit_is_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DARNConfig(8, local=STACK, **fields)
