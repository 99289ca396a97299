"""All conditionals: enumeration of all vectors, one orientation for density and sampler, TFP's interface."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from darn.images.local import LocalCausalConditional
from darn.model.autoregressive import (
    Conditional,
    LinearConditional,
    Unit,
    bernoulli_log_prob,
    earlier_mask,
    logistic_noise,
    threshold,
)
from darn.model.config import LocalConfig
from darn.model.gradients import darn_unit, straight_through_unit
from darn.model.layers import make_conditional
from darn.more.made import MADEConditional
from darn.more.nade import EoNADEConditional, NADEConditional
from tests.darn.rows import every_row
from tests.statistical import assert_mean_close

N = 6
KINDS = ("factorial", "linear", "nade", "eonade", "made", "local")
VECTORS = every_row(N).astype(float)


def make(kind: str, seed: tf.Tensor) -> Any:
    """A conditional over 6 bits in float64 with all parameters random."""
    if kind == "local":
        config = LocalConfig((2, 3), visible_kernel=3, visible_period=2)
        conditional: Any = LocalCausalConditional(config, dtype=tf.float64)
    else:
        conditional = make_conditional(
            kind, N, units=7, seed=seed, orders=1 if kind == "made" else 3, dtype=tf.float64, name=kind
        )
    for i, variable in enumerate(conditional.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign(tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    return conditional


def offset_of(seed: tf.Tensor, num: int = 1) -> tf.Tensor:
    return tf.random.stateless_normal([num, N], seed, dtype=tf.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_sum_to_one(kind: str, seed: tf.Tensor) -> None:
    conditional = make(kind, seed)
    for offset in (None, offset_of(seed)):
        total = tf.reduce_sum(tf.exp(conditional.log_prob(tf.constant(VECTORS), offset)))
        np.testing.assert_allclose(total, 1.0, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_logit_sees_the_bits_before_it_only(kind: str, seed: tf.Tensor, rng: np.random.Generator) -> None:
    conditional = make(kind, seed)
    h = tf.constant(rng.uniform(size=N))
    with tf.GradientTape() as tape:
        tape.watch(h)
        logits = conditional.logits(h[None])[0]
    jacobian = tape.jacobian(logits, h, unconnected_gradients=tf.UnconnectedGradients.ZERO).numpy()
    is_earlier = earlier_mask(N).numpy().T > 0  # (j, k) with k < j
    assert np.all(jacobian[~is_earlier] == 0)
    if kind not in ("factorial", "local"):  # a window sees a part, independent bits nothing
        assert np.all(jacobian[is_earlier] != 0)


def test_the_linear_conditional_is_logistic_regression_on_earlier_bits(seed: tf.Tensor) -> None:
    conditional = make("linear", seed)
    W, b = conditional.weights.numpy(), conditional.bias.numpy()
    for h, logits in zip(VECTORS[::7], conditional.logits(tf.constant(VECTORS[::7])).numpy(), strict=True):
        expected = [b[j] + sum(W[k, j] * h[k] for k in range(j)) for j in range(N)]
        np.testing.assert_allclose(logits, expected, rtol=1e-12)


def test_nade_is_its_formula(seed: tf.Tensor) -> None:
    nade = make("nade", seed)
    W, V, b, c = (variable.numpy() for variable in (nade.W, nade.V, nade.bias, nade.c))
    for h, logits in zip(VECTORS[::7], nade.logits(tf.constant(VECTORS[::7])).numpy(), strict=True):
        expected = [b[j] + V[j] @ (1 / (1 + np.exp(-(c + h[:j] @ W[:j])))) for j in range(N)]
        np.testing.assert_allclose(logits, expected, rtol=1e-12)


@pytest.mark.parametrize("kind", ["linear", "nade", "made", "local", "factorial"])
def test_samplers_walk_in_the_order_of_the_density(kind: str, seed: tf.Tensor) -> None:
    """Bit j is 1 exactly where its noise is below the logit that the density has for it."""
    conditional = make(kind, seed)
    offset = offset_of(seed, 40)
    noise = logistic_noise([40, N], seed, tf.float64)
    h = conditional.sample_from_noise(noise, offset)
    np.testing.assert_array_equal(h, threshold(conditional.logits(h, offset), noise))
    np.testing.assert_array_equal(h, Conditional.sample_from_noise(conditional, noise, offset))


@pytest.mark.parametrize("unit", [darn_unit, straight_through_unit])
def test_gradients_of_linear_bits_are_those_of_one_bit_after_the_other(
    unit: Unit, seed: tf.Tensor, rng: np.random.Generator
) -> None:
    """By bits, logits and weights; 70 units are more than a block."""
    n, B = 70, 5
    linear = LinearConditional(n, dtype=tf.float64)
    linear.weights.assign(0.4 * rng.normal(size=(n, n)))
    linear.bias.assign(rng.normal(size=n))
    offset, cost = tf.constant(rng.normal(size=(B, n))), tf.constant(rng.normal(size=(B, n)))
    noise = logistic_noise([B, n], seed, tf.float64)

    def by(draw: Callable[..., tf.Tensor]) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            tape.watch(offset)
            h = draw(linear, noise, offset, unit)
            loss = tf.reduce_sum(cost * h**2)
        return h, tape.gradient(loss, [offset, linear.bias, linear.weights])

    (h, found), (expected_h, expected) = by(LinearConditional.sample_from_noise), by(Conditional.sample_from_noise)
    np.testing.assert_array_equal(h, expected_h)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)
    with tf.GradientTape() as tape:
        tape.watch(logits := linear.logits(h, offset))
        loss = tf.reduce_sum(cost * unit(logits, noise) ** 2)
    assert np.abs(found[0] - tape.gradient(loss, logits)).max() > 1e-2  # bits act by later ones, too


def test_eonade_draws_in_each_of_its_orders(seed: tf.Tensor) -> None:
    eonade = make("eonade", seed)
    noise = logistic_noise([30, N], seed, tf.float64)
    h = eonade.sample_from_noise(noise)
    for order in range(3):
        rows = slice(order, None, 3)
        np.testing.assert_array_equal(h[rows], threshold(eonade.logits(h[rows], order=order), noise[rows]))


@pytest.mark.parametrize("kind", KINDS)
def test_draws_have_the_probabilities_of_the_density(kind: str, seed: tf.Tensor) -> None:
    conditional = make(kind, seed)
    h = conditional.sample(20_000, seed, offset_of(seed))
    probability = np.exp(conditional.log_prob(tf.constant(VECTORS), offset_of(seed)))
    likeliest = np.argsort(probability)[-5:]
    is_vector = np.all(h.numpy()[:, None] == VECTORS[likeliest], axis=-1)
    assert_mean_close(is_vector, probability[likeliest], min_detectable=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_conditionals_are_tfp_distributions(kind: str, seed: tf.Tensor) -> None:
    conditional = make(kind, seed)
    offset = offset_of(seed, 2)
    distribution = conditional.as_distribution(offset)
    assert isinstance(distribution, tfp.distributions.Distribution)
    assert distribution.batch_shape == [2]
    assert distribution.event_shape == [N]
    draws = distribution.sample(5, seed=seed)
    assert draws.shape == [5, 2, N]
    np.testing.assert_allclose(distribution.log_prob(draws)[:, 1], conditional.log_prob(draws[:, 1], offset[1]))
    assert conditional.as_distribution().sample(seed=seed).shape == [N]


def test_log_prob_in_training_of_eonade_is_the_mean_over_orders(seed: tf.Tensor) -> None:
    """With 3 bits all 6 orders can be visited."""
    eonade = EoNADEConditional(3, 5, seed=seed, num_orders=1, dtype=tf.float64)
    eonade.bias.assign([0.5, -1.0, 0.3])
    h = tf.constant([[1.0, 0.0, 1.0]], tf.float64)
    each = []
    for order in itertools.permutations(range(3)):
        eonade.orders.assign([order])
        each.append(float(eonade.log_prob(h)[0]))
    draws = eonade.in_training(seed).log_prob(tf.repeat(h, 20_000, axis=0), None)
    assert_mean_close(draws, np.mean(each), min_detectable=0.05)


def made_of_orders(seed: tf.Tensor, num_orders: int = 3) -> MADEConditional:
    made = MADEConditional(N, (9, 8), seed=seed, num_orders=num_orders, dtype=tf.float64)
    for i, variable in enumerate(made.trainable_variables):
        variable.assign(tf.random.stateless_normal(variable.shape, seed + i, dtype=tf.float64))
    return made


def test_orders_of_made(seed: tf.Tensor, rng: np.random.Generator) -> None:
    """In each order bits see those before them there; the mixture sums to one and is the mean of the orders."""
    made = made_of_orders(seed)
    places = made.degrees.numpy()[:, :N]
    np.testing.assert_array_equal(np.sort(places, axis=1), np.tile(np.arange(1, N + 1), (3, 1)))
    np.testing.assert_array_equal(places[0], np.arange(1, N + 1))
    each = []
    for order in range(3):
        h = tf.constant(rng.uniform(size=N))
        with tf.GradientTape() as tape:
            tape.watch(h)
            logits = made.logits(h[None], order=order)[0]
        jacobian = tape.jacobian(logits, h).numpy()
        sees = places[order][None, :] < places[order][:, None]
        assert np.all(jacobian[~sees] == 0)
        assert np.any(jacobian[sees] != 0)
        each.append(np.exp(bernoulli_log_prob(tf.constant(VECTORS), made.logits(tf.constant(VECTORS), order=order))))
        np.testing.assert_allclose(each[-1].sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(made.log_prob(tf.constant(VECTORS))), np.mean(each, axis=0), rtol=1e-10)


def test_training_of_made_draws_an_order(seed: tf.Tensor) -> None:
    made = made_of_orders(seed)
    h = tf.constant(VECTORS[:5])
    known = [bernoulli_log_prob(h, made.logits(h, order=order)).numpy() for order in range(3)]
    drawn = [made.in_training(seed + i).log_prob(h, None).numpy() for i in range(30)]
    found = [[np.array_equal(one, each) for each in known].index(True) for one in drawn]
    assert set(found) == {0, 1, 2}
    one = MADEConditional(N, (9,), seed=seed)
    assert one.in_training(seed) is one


def test_samples_of_made_in_several_orders(seed: tf.Tensor) -> None:
    made = made_of_orders(seed)
    h = made.sample(20_000, seed)
    expected = np.exp(made.log_prob(tf.constant(VECTORS))) @ VECTORS
    for j in range(N):
        assert_mean_close(h[:, j], expected[j], min_detectable=0.02)
    noise = logistic_noise([7, N], seed, tf.float64)
    bits = made.sample_from_noise(noise).numpy()
    for row in range(7):  # satisfies the equations of its order
        logits = made.logits(tf.constant(bits[row : row + 1]), order=row % 3).numpy()[0]
        np.testing.assert_array_equal(bits[row], noise.numpy()[row] < logits)
    with pytest.raises(ValueError, match="one order only"):
        made.sample_from_noise(noise, unit=lambda a, b: a)


def test_made_is_the_network_of_tensorflow_probability(seed: tf.Tensor, rng: np.random.Generator) -> None:
    made = MADEConditional(N, (9, 8), seed=seed, dtype=tf.float64)
    network = tfp.bijectors.AutoregressiveNetwork(
        params=1, event_shape=[N], hidden_units=[9, 8], activation="tanh", dtype="float64"
    )
    x = tf.constant(rng.uniform(size=(4, N)))
    network(x)
    parameters = [*zip(made.kernels, [*made.biases, made.bias], strict=True)]
    for variable, value in zip(network.trainable_variables, [v for pair in parameters for v in pair], strict=True):
        variable.assign(value)
    np.testing.assert_allclose(made.logits(x), network(x)[..., 0], atol=1e-6)  # its activations are in float32


def test_log_prob_of_intensities_is_minus_the_cross_entropy(rng: np.random.Generator) -> None:
    x, logits = rng.uniform(size=(3, 4)), rng.normal(size=(3, 4))
    q = 1 / (1 + np.exp(-logits))
    expected = (x * np.log(q) + (1 - x) * np.log(1 - q)).sum(axis=1)
    np.testing.assert_allclose(bernoulli_log_prob(tf.constant(x), tf.constant(logits)), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("make_wrong", "message"),
    [
        (lambda: LinearConditional(0), "at least 1 bit"),
        (lambda: NADEConditional(3, 0, seed=tf.constant([0, 1])), "at least 1, got 0"),
        (lambda: EoNADEConditional(3, 2, seed=tf.constant([0, 1]), num_orders=0), "at least 1 order"),
        (lambda: MADEConditional(3, (2,), seed=tf.constant([0, 1]), num_orders=0), "at least 1 order"),
        (lambda: MADEConditional(1, (2,), seed=tf.constant([0, 1])), "at least 2 bits"),
        (lambda: make_conditional("other", 3, units=1, seed=tf.constant([0, 1]), name="x"), "got 'other'"),
    ],
)
def test_bad_settings_are_refused(make_wrong, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_wrong()
