"""AIS from each cluster of the rows."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.estimates.ais import ais, linear_schedule
from rbm_tracking.estimates.strata import arrivals, starts, stratified
from rbm_tracking.model.exact import log_z_exact
from rbm_tracking.model.rbm import RBM, base_rate_biases
from rbm_tracking.model.visible import Bernoulli, Gaussian
from rbm_tracking.track.evidence import AIS_ERRORS, is_even
from rbm_tracking.use import evaluation
from tests.rbm_tracking import oracles
from tests.statistical import assert_mean_close


def test_the_sum_over_cells_is_unbiased(rng: np.random.Generator, seed: tf.Tensor) -> None:
    """For any starts and cells, and chains that have far from arrived; its error is that within strata."""
    parameters = oracles.random_rbm(rng, 5, 6, scale=0.7)
    rbm, base_b, cells = RBM(*map(tf.constant, parameters)), rng.normal(size=(3, 6)), 2 * rng.normal(size=(3, 6))
    options: dict[str, Any] = {"num_chains": 8000, "seed": seed, "generator": "numpy", "jit_compile": False}
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


def test_clusters_are_as_many_as_the_rows_have(rng: np.random.Generator) -> None:
    """Eight; one for each row that differs; one of few rows. Of any family."""
    assert starts(rng.integers(0, 2, (60, 9)), Bernoulli()).shape == (8, 9)
    two = np.repeat([[0, 0, 0], [1, 1, 1]], [55, 5], axis=0)
    assert sorted(starts(two, Bernoulli())[:, 0]) == pytest.approx([-np.log(49), np.log(49)])
    np.testing.assert_allclose(starts(two[8:57], Bernoulli()), base_rate_biases(two[8:57], clip=0.02)[None])
    numbers = np.repeat([[-3.0, 1.0], [3.0, 1.0]], 40, axis=0).astype(np.float32)
    assert sorted(starts(numbers, Gaussian(np.full(2, 2.0)))[:, 0]) == [-6.0, 6.0]
