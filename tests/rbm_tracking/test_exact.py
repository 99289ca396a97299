import time

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import logsumexp

from rbm_tracking.model import exact
from rbm_tracking.model.exact import log_likelihood_exact, log_z_exact, moments_exact
from rbm_tracking.model.rbm import RBM, log_z_independent
from tests.rbm_tracking import oracles
from tests.rbm_tracking.estimators import to_rbm

SHAPES = [(1, 1), (1, 6), (6, 1), (3, 8), (8, 3), (7, 7)]


@pytest.fixture(params=["direct", "tables"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small models by the direct sum, and by the tables that are meant for large ones."""
    monkeypatch.setattr(exact, "_DIRECT_TERMS", 2**60 if request.param == "direct" else 0)
    return str(request.param)


@pytest.mark.parametrize(("n_h", "n_v"), SHAPES)
def test_log_z_is_that_of_brute_force(path: str, rng: np.random.Generator, n_h: int, n_v: int) -> None:
    parameters = oracles.random_rbm(rng, n_h, n_v, scale=2.0)
    for beta in (-1.0, 0.0, 0.4, 1.0, 2.5):
        assert abs(log_z_exact(to_rbm(parameters), beta) - oracles.log_z(parameters, beta)) < 1e-11


@pytest.mark.parametrize(("scale", "sign"), [(1.0, 1), (40.0, -1), (300.0, 1), (3000.0, -1)])
def test_large_parameters_neither_overflow_nor_lose_digits(
    path: str, rng: np.random.Generator, scale: float, sign: int
) -> None:
    """Products of all factors reach exp(1e5), and single factors exp(1e4)."""
    planted = oracles.planted_rbm(rng, 12, 40, num_blocks=5, scale=scale)
    W, b, c = planted.parameters
    shifted = oracles.PlantedRBM(oracles.Parameters(W, b + sign * scale, c), *planted[1:])
    blocks = tuple(block._replace(b=block.b + sign * scale) for block in planted.blocks)
    assert log_z_exact(to_rbm(shifted.parameters)) == pytest.approx(shifted._replace(blocks=blocks).log_z(), rel=1e-13)


def test_planted_models_on_both_sides_of_the_limit(rng: np.random.Generator) -> None:
    """19 units enumerated in blocks of 2^9 x 2^8 states with 2^2 outer ones, more visible or more hidden units."""
    for n_h, n_v in [(19, 50), (50, 19)]:
        planted = oracles.planted_rbm(rng, n_h, n_v, num_blocks=6)
        for beta in (0.7, 1.0):
            assert log_z_exact(to_rbm(planted.parameters), beta) == pytest.approx(planted.log_z(beta), abs=1e-10)


def test_float32_parameters_are_taken_as_they_are(rng: np.random.Generator) -> None:
    parameters = oracles.Parameters(
        *(value.astype(np.float32).astype(float) for value in oracles.random_rbm(rng, 5, 9))
    )
    assert abs(log_z_exact(to_rbm(parameters, "float32")) - oracles.log_z(parameters)) < 1e-11


def test_beta_zero_is_the_anchor(path: str, rng: np.random.Generator) -> None:
    rbm = to_rbm(oracles.random_rbm(rng, 6, 9))
    assert log_z_exact(rbm, 0.0) == pytest.approx(float(log_z_independent(rbm.b, 6)), abs=1e-12)


def test_likelihoods_are_those_of_the_table_and_sum_to_one(path: str, rng: np.random.Generator) -> None:
    parameters = oracles.random_rbm(rng, 4, 7)
    v = oracles.binary_vectors(7)
    got = log_likelihood_exact(to_rbm(parameters), v)
    np.testing.assert_allclose(got, oracles.log_likelihood(parameters, v), rtol=1e-11)
    assert np.exp(got).sum() == pytest.approx(1.0, abs=1e-11)


def test_likelihoods_in_pieces(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, v = oracles.random_rbm(rng, 4, 7), oracles.binary_vectors(7)
    whole = log_likelihood_exact(to_rbm(parameters), v)
    monkeypatch.setattr(exact, "_CHUNK_TERMS", 40)
    np.testing.assert_allclose(log_likelihood_exact(to_rbm(parameters), v), whole, rtol=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("n_h", "n_v"), SHAPES)
def test_moments_are_those_of_the_table(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, n_h: int, n_v: int, beta: float
) -> None:
    parameters = oracles.random_rbm(rng, n_h, n_v)
    monkeypatch.setattr(exact, "_CHUNK_TERMS", 40)
    got, expected = moments_exact(to_rbm(parameters), beta), oracles.moments(parameters, beta)
    for name in ("v", "h", "hv"):
        np.testing.assert_allclose(getattr(got, name), getattr(expected, name), rtol=1e-11, err_msg=name)


def test_moments_are_the_gradient_of_log_z(rng: np.random.Generator) -> None:
    W, b, c = oracles.random_rbm(rng, 4, 5)
    got, step = moments_exact(to_rbm(oracles.Parameters(W, b, c))), 1e-5
    direction = oracles.random_rbm(rng, 4, 5)
    ends = [
        log_z_exact(to_rbm(oracles.Parameters(W + s * direction.W, b + s * direction.b, c + s * direction.c)))
        for s in (step, -step)
    ]
    slope = (got.hv * direction.W).sum() + got.v @ direction.b + got.h @ direction.c
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(
        slope, rel=1e-7
    )  # error of the difference: step^2, eps/step


def test_more_than_25_units_are_refused() -> None:
    rbm = RBM(tf.zeros([26, 30]), tf.zeros([30]), tf.zeros([26]))
    message = "at most 25 hidden or visible units, got 26 hidden and 30 visible; estimate it with annealed importance"
    for function in (log_z_exact, moments_exact):
        with pytest.raises(ValueError, match=message):
            function(rbm)
    with pytest.raises(ValueError, match=message):
        log_likelihood_exact(rbm, np.zeros((1, 30)))


def test_diverged_parameters_and_wrong_data_are_refused(rng: np.random.Generator) -> None:
    rbm = to_rbm(oracles.random_rbm(rng, 3, 4))
    with pytest.raises(ValueError, match="the RBM's c must be finite"):
        log_z_exact(rbm._replace(c=rbm.c * np.nan))
    with pytest.raises(ValueError, match="beta must be a finite number, got inf"):
        log_z_exact(rbm, np.inf)
    with pytest.raises(ValueError, match="v must have 4 columns"):
        log_likelihood_exact(rbm, np.zeros((1, 3)))
    with pytest.raises(ValueError, match="v must be 0 or 1 everywhere, got 2"):
        log_likelihood_exact(rbm, [[0, 1, 2, 0]])


@pytest.mark.slow
def test_the_largest_models_of_the_paper_take_seconds(rng: np.random.Generator) -> None:
    """25 hidden and 784 visible units, 2.6e10 factors, in five blocks whose hidden states are few enough for NumPy.

    The limit leaves room for a busy machine.
    """
    W, b, c = np.zeros((25, 784)), rng.normal(size=784), rng.normal(size=25)
    order, exact = rng.permutation(784), 0.0
    for rows, columns in zip(np.split(rng.permutation(25), 5), np.array_split(order, 5), strict=True):
        block = 0.3 * rng.normal(size=(5, len(columns)))
        W[np.ix_(rows, columns)] = block
        h = oracles.binary_vectors(5)
        exact += logsumexp(h @ c[rows] + np.logaddexp(0, h @ block + b[columns]).sum(axis=1))
    start = time.process_time()
    got = log_z_exact(to_rbm(oracles.Parameters(W, b, c)))
    assert time.process_time() - start < 40
    assert got == pytest.approx(exact, abs=1e-9)
