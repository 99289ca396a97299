"""rbm_tracking.model.conditionals: labels and missing values against the table of all rows, and Gaussian mixtures."""

import numpy as np
import pytest
import tensorflow as tf

from rbm_tracking.model import conditionals
from rbm_tracking.model.conditionals import impute, log_label_probs
from rbm_tracking.model.exact import log_likelihood_exact
from rbm_tracking.model.families.softmax import Softmax
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.visible import Bernoulli, Gaussian, Spin, Visible
from tests.rbm_tracking import oracles

N_V = 5
FAMILIES: list[Visible] = [Bernoulli(), Spin(), Softmax(N_V, ((3, 0, 1), (2, 4)), (True, False))]


def make(rng: np.random.Generator, visible: Visible, n_h: int = 3) -> RBM:
    return RBM(*map(tf.constant, oracles.random_rbm(rng, n_h, N_V, 1.5)))._replace(visible=visible)


def expected_mean(rbm: RBM, row: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """By the probabilities of all rows that agree with what is observed."""
    rows = rbm.visible.states(N_V, 0, int(rbm.visible.num_states(N_V)))
    rows = rows[(rows[:, ~missing] == row[~missing]).all(axis=1)]
    p = np.exp(log_likelihood_exact(rbm, rows))
    return p @ rows / p.sum()


def test_labels_are_those_of_the_joint_table(rng: np.random.Generator) -> None:
    labels = [1, 4]
    rbm = make(rng, Softmax(N_V, (tuple(labels),), (True,)))
    rows = rbm.visible.states(N_V, 0, int(rbm.visible.num_states(N_V)))
    found = np.exp(log_label_probs(rbm, rows, labels))
    expected = [expected_mean(rbm, row, np.isin(np.arange(N_V), labels))[labels] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    without = np.delete(rows, labels, axis=1)
    np.testing.assert_allclose(np.exp(log_label_probs(rbm, without, labels)), found, atol=1e-12)
    with pytest.raises(ValueError, match=r"rows must be \[N, 3\] without, or \[N, 5\] with the label"):
        log_label_probs(rbm, rows[:, :2], labels)
    with pytest.raises(ValueError, match=r"labels must be columns from 0 to 4, got \[3, 5\]"):
        log_label_probs(rbm, rows, [3, 5])


@pytest.mark.parametrize("visible", FAMILIES)
def test_missing_values_are_conditional_means(rng: np.random.Generator, visible: Visible) -> None:
    rbm = make(rng, visible)
    rows = visible.states(N_V, 0, int(visible.num_states(N_V)))
    rows = rows[rng.integers(0, len(rows), 40)]
    mask = rng.random(rows.shape) < 0.5
    mask[0], mask[1] = True, False
    found = impute(rbm, np.where(mask, np.nan, rows), mask, rng=rng)
    expected = [expected_mean(rbm, row, missing) for row, missing in zip(rows, mask, strict=True)]
    np.testing.assert_allclose(found.values, expected, atol=1e-12)
    assert found.is_exact.all()
    assert not found.error.any()


@pytest.mark.parametrize("visible", FAMILIES)
def test_chains_agree_with_the_exact_means_up_to_their_error(
    rng: np.random.Generator, visible: Visible, monkeypatch: pytest.MonkeyPatch
) -> None:
    rbm = make(rng, visible)
    rows = visible.states(N_V, 0, int(visible.num_states(N_V)))
    mask = np.zeros(rows.shape, bool)
    mask[:, [0, 2, 3]] = True
    exact = impute(rbm, rows, mask, rng=rng)
    monkeypatch.setattr(conditionals, "_MAX_STATES", 1)
    found = impute(rbm, rows, mask, rng=rng, num_chains=50, num_steps=100)
    assert not found.is_exact.any()
    np.testing.assert_array_equal(found.values[~mask], rows[~mask])
    z = (found.values - exact.values)[mask] / np.maximum(found.error[mask], 1e-3)
    assert np.abs(z).max() < 6
    assert 0 < found.error[mask].max() < 0.1
    assert np.mean(np.abs(z) < 2.5) > 0.9


def test_missing_numbers_are_those_of_the_mixture(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    precision = np.exp(rng.normal(size=N_V))
    rbm = make(rng, Gaussian(tf.constant(precision)))
    W, b, c = (np.asarray(part) for part in rbm[:3])
    v, missing = rng.normal(size=N_V), np.array([True, False, True, False, False])
    h = oracles.binary_vectors(3)
    means = (h @ W + b) / precision
    log_p = h @ c + 0.5 * (means**2 * precision).sum(axis=1)
    log_p -= 0.5 * (precision * (v - means) ** 2)[:, ~missing].sum(axis=1)
    p = np.exp(log_p - log_p.max())
    found = impute(rbm, v[None], missing[None], rng=rng)
    np.testing.assert_allclose(found.values[0, missing], (p @ means / p.sum())[missing], atol=1e-12)
    monkeypatch.setattr(conditionals, "_CHUNK", 16)  # two rows at a time
    several = impute(rbm, np.tile(v, (5, 1)), np.tile(missing, (5, 1)), rng=rng)
    np.testing.assert_allclose(several.values, np.tile(found.values, (5, 1)), atol=1e-12)
    monkeypatch.setattr(conditionals, "_MAX_HIDDEN", 0)
    by_chains = impute(rbm, v[None], missing[None], rng=rng, num_chains=100, num_steps=200)
    z = (by_chains.values - found.values)[0, missing] / by_chains.error[0, missing]
    assert np.abs(z).max() < 5


def test_what_cannot_be_imputed(rng: np.random.Generator) -> None:
    rbm = make(rng, FAMILIES[2])
    with pytest.raises(ValueError, match=r"what is observed must have at most one 1 .* got 2 in row 0, group 2,4"):
        impute(rbm, [[1, 0, 1, 0, 1]], [[True, False, False, False, False]], rng=rng)
    with pytest.raises(ValueError, match=r"rows and mask must be \[N, 5\], got \(1, 5\) and \(1, 4\)"):
        impute(rbm, np.zeros((1, 5)), np.zeros((1, 4)), rng=rng)
    with pytest.raises(ValueError, match="num_chains and num_steps must be at least 2, got 1 and 200"):
        impute(rbm, np.zeros((1, 5)), np.ones((1, 5)), rng=rng, num_chains=1)
