import re

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import ArrayLike

from rbm_tracking.model.checks import check_binary, check_rbm
from rbm_tracking.model.families.mixed import Mixed
from rbm_tracking.model.rbm import (
    RBM,
    activations,
    base_rate_biases,
    energy,
    free_energy,
    hidden_probs,
    initial_rbm,
    log_prob_unnormalised,
    log_z_independent,
    softplus_sum,
    visible_probs,
)
from rbm_tracking.model.visible import Bernoulli, Gaussian
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings, to_rbm
from tests.statistical import assert_mean_close

BETAS = [0.0, 0.3, 1.0]


@pytest.fixture
def parameters(rng: np.random.Generator) -> oracles.Parameters:
    return oracles.random_rbm(rng, 3, 4)


@pytest.mark.parametrize("beta", BETAS)
def test_energy_is_that_of_every_pair(parameters: oracles.Parameters, beta: float) -> None:
    v, h = oracles.binary_vectors(4), oracles.binary_vectors(3)
    got = energy(to_rbm(parameters), tf.constant(v)[:, None], tf.constant(h)[None], beta)
    np.testing.assert_allclose(got, oracles.energy(parameters, v, h, beta), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_hidden_units_are_summed_out(parameters: oracles.Parameters, beta: float) -> None:
    rbm, v = to_rbm(parameters), tf.constant(oracles.binary_vectors(4))
    expected = np.log(np.exp(oracles.log_joint(parameters, beta)).sum(axis=1))
    np.testing.assert_allclose(log_prob_unnormalised(rbm, v, beta), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(free_energy(rbm, v, beta), -expected, rtol=1e-12, atol=1e-12)
    without_biases = expected - oracles.binary_vectors(4) @ parameters.b
    np.testing.assert_allclose(softplus_sum(activations(rbm, v), beta), without_biases, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_conditionals_are_those_of_the_table(parameters: oracles.Parameters, beta: float) -> None:
    rbm, v, h = to_rbm(parameters), oracles.binary_vectors(4), oracles.binary_vectors(3)
    p = oracles.joint(parameters, beta)
    np.testing.assert_allclose(hidden_probs(rbm, tf.constant(v), beta), p @ h / p.sum(1)[:, None], rtol=1e-12)
    np.testing.assert_allclose(visible_probs(rbm, tf.constant(h), beta), p.T @ v / p.sum(0)[:, None], rtol=1e-12)


def test_each_state_has_its_own_beta(parameters: oracles.Parameters) -> None:
    rbm, v = to_rbm(parameters), tf.constant(oracles.binary_vectors(4)[:3])
    together = log_prob_unnormalised(rbm, v, tf.constant(BETAS, tf.float64))
    alone = [log_prob_unnormalised(rbm, v[i : i + 1], beta)[0] for i, beta in enumerate(BETAS)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    probs = hidden_probs(rbm, v, tf.constant(BETAS, tf.float64))
    np.testing.assert_allclose(
        probs, [hidden_probs(rbm, v[i : i + 1], beta)[0] for i, beta in enumerate(BETAS)], rtol=1e-12
    )


def test_log_z_at_beta_zero(parameters: oracles.Parameters) -> None:
    got = log_z_independent(tf.constant(parameters.b, tf.float32), 3)
    assert got.dtype == tf.float64
    exact_biases = parameters._replace(b=parameters.b.astype(np.float32))
    np.testing.assert_allclose(got, oracles.log_z(exact_biases, 0.0), rtol=1e-12)


def test_large_activations_do_not_overflow() -> None:
    rbm = RBM(tf.constant([[1e4, -1e4]]), tf.constant([0.0, 0.0]), tf.constant([0.0]))
    got = log_prob_unnormalised(rbm, tf.constant([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(got, [1e4, 0.0])


def test_base_rates_maximise_the_likelihood_of_independent_units(rng: np.random.Generator) -> None:
    data = rng.random((500, 3)) < [0.1, 0.5, 0.9]
    np.testing.assert_allclose(1 / (1 + np.exp(-base_rate_biases(data))), data.mean(axis=0), rtol=1e-12)


def test_constant_columns_have_finite_biases() -> None:
    biases = base_rate_biases([[0, 1], [0, 1]], clip=1e-5)
    np.testing.assert_allclose(biases, [np.log(1e-5 / (1 - 1e-5)), np.log((1 - 1e-5) / 1e-5)], rtol=1e-9)


def test_initial_parameters(rng: np.random.Generator, seed: tf.Tensor) -> None:
    data = rng.random((200, 30)) < 0.3
    rbm = initial_rbm(400, seed=seed, data=data, weight_scale=0.02)
    assert [tuple(value.shape) for value in rbm[:3]] == [(400, 30), (30,), (400,)]
    assert {value.dtype for value in rbm[:3]} == {tf.float32}
    np.testing.assert_allclose(rbm.b, base_rate_biases(data), rtol=1e-6)
    np.testing.assert_array_equal(rbm.c, 0)
    W = np.ravel(rbm.W).astype(np.float64)
    assert_mean_close(W, 0.0, min_detectable=0.02 * 0.06)
    assert_mean_close(W**2, 0.02**2, min_detectable=0.02**2 * 0.08)
    again, other = (initial_rbm(400, seed=s, data=data, weight_scale=0.02) for s in (seed, seed + 1))
    np.testing.assert_array_equal(rbm.W, again.W)
    assert not np.allclose(rbm.W, other.W)
    np.testing.assert_array_equal(initial_rbm(2, seed=seed, n_v=5).b, np.zeros(5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_h": 3}, "needs `data` or the number of visible units"),
        ({"n_h": 0, "n_v": 2}, "n_h must be at least 1"),
        ({"n_h": 2, "n_v": 2, "weight_scale": float("nan")}, "weight_scale at least 0, got 2 and nan"),
        ({"n_h": 2, "data": [[0, 1]], "clip": 0.5}, r"clip must be in \(0, 0.5\), got 0.5"),
    ],
)
def test_impossible_initial_parameters(seed: tf.Tensor, arguments: Settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        initial_rbm(seed=seed, **arguments)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([0, 1], r"matrix \[N, n_v\] with at least one row and column, got shape \(2,\)"),
        (np.zeros((0, 3)), r"at least one row and column, got shape \(0, 3\)"),
        ([[0, 1, 1]], "must have 2 columns, one for each visible unit, got 3"),
        ([["a", "b"]], "0 or 1 everywhere, got dtype <U1"),
        ([[0.0, np.nan]], "got nan in row 0, column 1; drop or impute"),
        ([[0.0, 1.0], [1.0, 0.5]], "got 0.5 in row 1, column 1; binarise it"),
        ([[0, -1]], "got -1 in row 0, column 1"),
    ],
)
def test_data_that_are_not_binary(data: ArrayLike, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message) if "\\" not in message else message):
        check_binary(data, n_v=2)


@pytest.mark.parametrize("data", [[[0, 1]], [[0.0, 1.0]], [[False, True]], np.array([[0, 1]], np.uint8)])
def test_binary_data_of_any_type(data: ArrayLike) -> None:
    np.testing.assert_array_equal(check_binary(data, n_v=2), [[0, 1]])


def test_shapes_and_values_of_parameters_are_checked(parameters: oracles.Parameters) -> None:
    check_rbm(to_rbm(parameters))
    with pytest.raises(ValueError, match=r"shapes \[n_h, n_v\], \[n_v\], \[n_h\]"):
        check_rbm(to_rbm(parameters._replace(c=parameters.b)))
    with pytest.raises(ValueError, match="the RBM's b must be finite"):
        check_rbm(to_rbm(parameters._replace(b=parameters.b * np.inf)))
    with pytest.raises(ValueError, match="at least the parameters W, b and c, got 2 of them"):
        check_rbm(parameters[:2])


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ([1.0, np.nan], "parameters of the hidden Gaussian units must be finite, got NaN"),
        ([1.0, -1.0], "precisions of the hidden Gaussian units must be positive"),
        ([1.0, 1.0, 1.0], r"parameters of the hidden Gaussian units must have the shape \[2\], got \[3\]"),
    ],
)
def test_own_parameters_of_units_are_checked_in_layers_of_several_families(
    parameters: oracles.Parameters, widths: list[float], message: str
) -> None:
    hidden = Mixed(((1,), (0, 2)), (Bernoulli(), Gaussian(np.array(widths))))
    with pytest.raises(ValueError, match=message):
        check_rbm((*parameters, Bernoulli(), hidden))
