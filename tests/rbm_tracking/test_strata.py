"""AIS from each cluster of the rows."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.estimates.ais import ais, linear_schedule
from rbm_tracking.estimates.strata import arrivals, starts, stratified, with_maxima
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.families.rectified import DReLU
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM, base_rate_biases
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible
from rbm_tracking.track.evidence import AIS_ERRORS, is_even
from rbm_tracking.use import evaluation
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import Settings
from tests.statistical import assert_mean_close


def test_the_sum_over_cells_is_unbiased(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """For any starts and cells, and chains that have far from arrived; its error is that within strata."""
    parameters = oracles.random_rbm(rng, 5, 6, scale=0.7)
    rbm, base_b, cells = RBM(*map(tf.constant, parameters)), rng.normal(size=(3, 6)), 2 * rng.normal(size=(3, 6))
    options: Settings = {"num_chains": 8000, "seed": seed, "generator": "numpy", "jit_compile": False}
    result = stratified(rbm, [0.0, 0.3, 0.7, 1.0], base_b, cells, **options)
    weights = np.exp(result.log_weights - oracles.log_z(parameters)).reshape(3, -1)
    assert_mean_close(weights.mean(axis=0), 1.0, min_detectable=0.1)
    error = np.sqrt((weights.var(axis=1, ddof=1) / 8000).sum()) / 3
    assert result.standard_error == pytest.approx(error / weights.mean())
    assert arrivals(result, 3, rbm.visible)[1] == pytest.approx(
        base_rate_biases(result.v[8000:16_000], clip=0.02, visible=rbm.visible)
    )


def test_no_phase_of_the_rows_is_left_to_luck(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Nearly all zeros, or with a probability of 10 % nearly all ones: AIS from the rates of all rows misses the second
    phase with each chain, and states the log Z of the first one with even weights."""
    num_bits, strength, share = 60, 3.0, 0.1
    c = np.log(share / (1 - share)) - strength * num_bits
    rbm = RBM(
        tf.constant(np.full((1, num_bits), 2 * strength)), tf.constant(np.full(num_bits, -strength)), tf.constant([c])
    )
    is_on = rng.random((500, 1)) < share
    rows = (rng.random((500, num_bits)) < np.where(is_on, 0.95, 0.05)).astype(np.uint8)
    exact, base_b = log_z_exact(rbm), base_rate_biases(rows)
    plain = evaluation.annealing(ais(rbm, linear_schedule(400), seed=seed, base_b=base_b, generator="numpy"))
    assert is_even(plain)
    assert plain.log_z + AIS_ERRORS * plain.std < exact
    found, rise = evaluation.checked_again(rbm, starts(rows, rbm.visible), 400, seed, "numpy")
    assert is_even(found)
    assert rise == 0
    assert found.log_z == pytest.approx(exact, abs=AIS_ERRORS * found.std)


@pytest.mark.parametrize("units", ["bernoulli", "spin", "softmax"])
def test_a_mode_that_no_row_is_in_is_found(units: str, rng: np.random.Generator, seed: tf.Tensor) -> None:
    """Nearly all zeros, as all rows are, or with a probability of 70 % nearly all ones: AIS from the rows misses these
    with each chain, and states the log Z of the zeros with even weights."""
    num_bits, strength, share = 60, 3.0, 0.7
    pairs = tuple((i, i + 1) for i in range(0, num_bits, 2))
    families: dict[str, Visible] = {"bernoulli": Bernoulli(), "spin": Spin(), "softmax": Softmax(num_bits, pairs)}
    visible = families[units]
    # One bit a category is on in one phase, and the other one in the other
    sign = np.where(np.arange(num_bits) % 2, 1.0, -1.0) if units == "softmax" else np.ones(num_bits)
    size = 0.5 if units == "spin" else 1.0
    W = 2 * strength * size * sign[None]
    b = -0.5 * W[0]
    c = np.log(share / (1 - share)) - W.sum() * 0.5 * (units == "bernoulli")
    rbm = RBM(tf.constant(W), tf.constant(b), tf.constant([c]), visible)
    rows = visible.draw(np.broadcast_to(b, (500, num_bits)), rng.random((500, visible.num_noise(num_bits))))
    base_b = starts(rows, visible)
    exact = log_z_exact(rbm)
    options: Settings = {"seed": seed, "generator": "numpy"}
    plain = evaluation.annealing(stratified(rbm, linear_schedule(100), base_b, base_b, **options))
    assert is_even(plain)
    assert plain.log_z == pytest.approx(exact + np.log(1 - share), abs=AIS_ERRORS * plain.std + 0.01)
    found, _ = evaluation.checked_again(rbm, base_b, 400, seed, "numpy")
    assert is_even(found)
    assert found.log_z == pytest.approx(exact, abs=AIS_ERRORS * found.std)


def test_no_strata_are_added_where_rows_lead_to_all_modes(rng: np.random.Generator) -> None:
    """Two modes, of which the rows are, or one; and layers that cannot be moved unit by unit."""
    W = np.array([[6.0] * 60])
    both = RBM(tf.constant(W), tf.constant(-0.5 * W[0]), tf.constant([-180.0]))
    rows = np.repeat([[0], [1]], 100, axis=0) * np.ones((1, 60), np.uint8)
    base_b = starts(rows, both.visible)
    assert len(with_maxima(both, base_b, rng)) == len(base_b) == 2
    tame = RBM(tf.constant(0.01 * W), tf.constant(-0.5 * W[0]), tf.constant([0.0]))
    assert len(with_maxima(tame, base_b[:1], rng)) == 1
    numbers = RBM(
        tf.constant(W), tf.constant(W[0]), tf.constant([0.0]), Gaussian(np.full(60, 100.0)), DReLU(*np.zeros((3, 1)))
    )
    assert len(with_maxima(numbers, base_b[:1], rng)) == 1


def test_clusters_are_as_many_as_the_rows_have(rng: np.random.Generator) -> None:
    """Eight; one for each row that differs; one of few rows. Of any family."""
    assert starts(rng.integers(0, 2, (60, 9)), Bernoulli()).shape == (8, 9)
    two = np.repeat([[0, 0, 0], [1, 1, 1]], [55, 5], axis=0)
    assert sorted(starts(two, Bernoulli())[:, 0]) == pytest.approx([-np.log(49), np.log(49)])
    np.testing.assert_allclose(starts(two[8:57], Bernoulli()), base_rate_biases(two[8:57], clip=0.02)[None])
    numbers = np.repeat([[-3.0, 1.0], [3.0, 1.0]], 40, axis=0).astype(np.float32)
    assert sorted(starts(numbers, Gaussian(np.full(2, 2.0)))[:, 0]) == [-6.0, 6.0]
