"""Description lengths against enumeration (Eqs. 11-15), and the cost of sampling an fDARN."""

import math

import numpy as np
import pytest
import tensorflow as tf

from darn.model.description_length import description_length, exact_log_likelihood, fast_sampling_cost
from darn.model.model import DARN, DARNConfig
from tests.darn.rows import every_row
from tests.statistical import assert_mean_close

N_X, N_H = 5, 3


def make(seed: tf.Tensor, **config) -> DARN:
    config = {"hidden": (N_H,), "units": (4,), "visible_conditional": "factorial", **config}
    model = DARN(DARNConfig(visible=N_X, dtype="float64", **config), seed=seed)
    for i, variable in enumerate(model.trainable_variables):
        key = tf.random.experimental.stateless_fold_in(seed, i)
        variable.assign_add(0.5 * tf.random.stateless_normal(variable.shape, key, dtype=tf.float64))
    return model


def test_it_is_the_enumerated_free_energy(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model = make(seed, visible_conditional="linear")
    x = (rng.uniform(size=(1, N_X)) < 0.5).astype(np.uint8)
    h = tf.constant(every_row(N_H), tf.float64)
    many = tf.constant(np.repeat(x, len(h), axis=0), tf.float64)
    log_q, log_p = model.log_q(many, (h,)), model.log_prior((h,))
    parts = np.exp(log_q.numpy()) @ np.stack([-log_p, log_q, -model.log_visible(many, (h,))], axis=1)
    lengths = description_length(model, np.repeat(x, 4000, axis=0), seed=seed)
    for drawn, exact in zip((lengths.hidden, lengths.bits_back, lengths.visible), parts, strict=True):
        assert_mean_close(drawn, exact, min_detectable=0.2)
    np.testing.assert_allclose(lengths.total, lengths.hidden + lengths.bits_back + lengths.visible)


def test_bits_are_nats_over_log_two(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model, x = make(seed), (rng.uniform(size=(6, N_X)) < 0.5).astype(np.uint8)
    nats, bits = (description_length(model, x, seed=seed, unit=unit, num_samples=3) for unit in ("nats", "bits"))
    for in_nats, in_bits in zip(nats, bits, strict=True):
        np.testing.assert_allclose(in_bits, in_nats / math.log(2))


def test_each_sample_has_draws_of_its_own(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model, x = make(seed), (rng.uniform(size=(100, N_X)) < 0.5).astype(np.uint8)
    one, two = (description_length(model, x, seed=seed, num_samples=num_samples).total for num_samples in (1, 2))
    assert np.mean(one != two) > 0.3


def test_it_is_no_shorter_than_the_information_and_equal_for_the_posterior(
    seed: tf.Tensor, rng: np.random.Generator
) -> None:
    """With one unit and no weights to x, p(h | x) is p(h), which an encoder without weights can have."""
    x = (rng.uniform(size=(8, N_X)) < 0.5).astype(np.uint8)
    model = make(seed)
    lengths = description_length(model, x, seed=seed, num_samples=200)
    assert np.all(lengths.total.mean() >= -exact_log_likelihood(model, x).mean())
    model = make(seed, hidden=(1,), units=())
    for network in (model.encoders[0].network, model.decoders[0].network):
        network.kernels[0].assign(tf.zeros_like(network.kernels[0]))
    model.encoders[0].conditional.bias.assign(model.prior.bias)
    np.testing.assert_allclose(
        description_length(model, x, seed=seed).total, -exact_log_likelihood(model, x), rtol=1e-9
    )


def test_rows_do_not_depend_on_the_batch_of_a_fully_visible_model(seed: tf.Tensor, rng: np.random.Generator) -> None:
    model = make(seed, hidden=(), units=(), visible_conditional="linear")
    x = (rng.uniform(size=(7, N_X)) < 0.5).astype(np.uint8)
    lengths = description_length(model, x, seed=seed, batch_size=3)
    np.testing.assert_allclose(lengths.total, -exact_log_likelihood(model, x))
    assert np.all(lengths.hidden == 0)


def test_the_cost_of_a_sample_counts_active_units(seed: tf.Tensor) -> None:
    model = make(seed, hidden=(10,), units=())
    model.prior.weights.assign(tf.zeros([10, 10], tf.float64))
    model.prior.bias.assign(tf.fill([10], tf.constant(math.log(0.25), tf.float64)))  # active with probability 0.2
    cost, active = fast_sampling_cost(model, seed, num_samples=4000)
    assert active == pytest.approx(2.0, abs=5 * math.sqrt(1.6 / 4000))
    assert cost == pytest.approx(active * 15)
    assert fast_sampling_cost(model, 3) == fast_sampling_cost(model, tf.constant([0, 3]))


@pytest.mark.parametrize("changes", [{"units": (3,)}, {"hidden": (2, 2)}, {"visible_conditional": "linear"}])
def test_the_cost_needs_an_fdarn(changes: dict, seed: tf.Tensor) -> None:
    with pytest.raises(ValueError, match="got"):
        fast_sampling_cost(make(seed, **{"units": (), **changes}), seed)


def test_bad_arguments_are_refused(seed: tf.Tensor) -> None:
    model = make(seed)
    with pytest.raises(ValueError, match="'nats' or 'bits'"):
        description_length(model, np.zeros((2, N_X)), seed=seed, unit="bytes")
    with pytest.raises(ValueError, match="0 or 1"):
        description_length(model, np.full((2, N_X), 0.5), seed=seed)
    with pytest.raises(ValueError, match="at least 1"):
        description_length(model, np.zeros((2, N_X)), seed=seed, num_samples=0)
    for wrong in (0, -2):  # -2 gave lengths of zero
        with pytest.raises(ValueError, match="batch_size must be a whole number, at least 1"):
            description_length(model, np.zeros((2, N_X)), seed=seed, batch_size=wrong)
