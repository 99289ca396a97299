import numpy as np
import pytest
import tensorflow as tf

from ebp.network import update
from ebp.network.forward import Layer
from ebp.network.heads import SignHead
from ebp.network.network import EBPNetwork
from ebp.network.update import MAX_SHIFT, bayes_increments, damping
from ebp.training.loops import dense_epoch
from ebp.training.online import MIN_LAZY_WEIGHTS, online_epoch
from ebp.training.training import fit_epoch


def increments(network: EBPNetwork, X: np.ndarray, Y: np.ndarray) -> tuple[list, list, bool]:
    means = network.architecture.means(network.h)
    change = bayes_increments(network.architecture, network.h, means, network.b, tf.constant(X), tf.constant(Y))
    return change.h, change.b, bool(change.is_damped)


def test_a_batch_adds_the_increments_of_its_examples(rng: np.random.Generator) -> None:
    network = EBPNetwork((9, 6, 2), head="multiclass", dtype=tf.float64)
    X, Y = rng.normal(size=(3, 9)), rng.choice([-1.0, 1.0], (3, 2))
    together, biases, is_damped = increments(network, X, Y)
    alone = [increments(network, X[i : i + 1], Y[i : i + 1]) for i in range(3)]
    assert not is_damped
    for layer in range(2):
        np.testing.assert_allclose(together[layer], sum(one[0][layer] for one in alone), rtol=1e-12, atol=1e-16)
        np.testing.assert_allclose(biases[layer], sum(one[1][layer] for one in alone), rtol=1e-12)


def test_one_example_is_never_damped(rng: np.random.Generator) -> None:
    """It may well shift mu by many standard deviations: the label was nearly impossible."""
    network = EBPNetwork((9, 1), dtype=tf.float64)
    x = rng.choice([-1.0, 1.0], (1, 9))
    network.h[0].assign(3.0 * x.T)
    _, _, is_damped = increments(network, x, np.array([[-1.0]]))
    assert not is_damped


def test_copies_of_one_example_are_damped(rng: np.random.Generator) -> None:
    """Their sum would shift mu / sigma by about 0.8 B; `damping` lets MAX_SHIFT and one example's share."""
    network = EBPNetwork((9, 1), dtype=tf.float64)
    x = rng.choice([-1.0, 1.0], (1, 9))
    for B in (2, 400):
        h, _, is_damped = increments(network, np.repeat(x, B, axis=0), np.ones((B, 1)))
        assert is_damped == (B == 400)
    own = np.sqrt(2 / np.pi)  # phi(0) / Phi(0); sigma = 1: nine inputs of variance 1 and a bias, over K = 10
    shift = float((x @ h[0].numpy())[0, 0]) / np.sqrt(10)
    assert shift == pytest.approx((MAX_SHIFT + own) * 0.9, rel=1e-9)  # 9 of the 10 terms are weights, one is the bias


def test_a_weight_is_that_of_copies_and_padding_does_not_damp(rng: np.random.Generator) -> None:
    """A row of weight 400 is 400 rows, also in what is damped; one of weight 0, whose mu moves far, is none."""
    network = EBPNetwork((9, 1), dtype=tf.float64)
    x = rng.choice([-1.0, 1.0], (2, 9))
    rows = np.vstack([np.repeat(x[:1], 400, axis=0), x[1:]])
    copies, _, is_damped = increments(network, rows, np.ones((401, 1)))
    assert is_damped
    padded = np.vstack([x, 1e3 * x[:1]])
    for X, weight in ((x, [400.0, 1.0]), (padded, [400.0, 1.0, 0.0])):
        counts = tf.constant(weight, tf.float64)
        means = network.architecture.means(network.h)
        parts = (tf.constant(X), tf.constant(np.ones((len(X), 1))), counts)
        change = bayes_increments(network.architecture, network.h, means, network.b, *parts)
        np.testing.assert_allclose(change.h[0], copies[0], rtol=1e-12)


def test_a_row_of_weight_0_beside_an_example_does_not_damp_it(rng: np.random.Generator) -> None:
    """What it asks for does not matter, though the example shifts its mu by many standard deviations."""
    network = EBPNetwork((9, 1), dtype=tf.float64)
    x = rng.choice([-1.0, 1.0], (1, 9))
    network.h[0].assign(3.0 * x.T)
    means = network.architecture.means(network.h)
    X, Y = tf.constant(np.vstack([x, x])), tf.constant([[-1.0], [1.0]], tf.float64)
    weight = tf.constant([1.0, 0.0], tf.float64)
    change = bayes_increments(network.architecture, network.h, means, network.b, X, Y, weight)
    assert not bool(change.is_damped)
    alone, _, _ = increments(network, x, np.array([[-1.0]]))
    np.testing.assert_allclose(change.h[0], alone[0], rtol=1e-12)


@pytest.mark.parametrize("max_shift", [0.5, 3.0])
def test_damped_shifts_are_within_the_limit(max_shift: float, rng: np.random.Generator) -> None:
    v, delta = rng.normal(size=(50, 6)) + 2.0, rng.normal(size=(50, 3)) + 1.0
    sigma2, var = rng.uniform(0.5, 2.0, (50, 3)), rng.uniform(0.1, 1.0, (6, 3))
    layer = Layer(tf.constant(v), tf.zeros([6, 3], tf.float64), tf.zeros([50, 3], tf.float64), tf.constant(sigma2), 7)
    d_h, d_b = v.T @ delta / np.sqrt(7), delta.sum(axis=0) / np.sqrt(7)
    h, b, variances, deltas = (tf.constant(term) for term in (d_h, d_b, var, delta))
    factor = float(damping(h, b, variances, deltas, layer, max_shift))
    shift = np.abs((v @ (var * d_h) + d_b) / np.sqrt(7))
    limit = max_shift * np.sqrt(sigma2) + np.abs(delta) * sigma2
    assert 0 < factor < 1
    assert np.max(factor * shift / limit) == pytest.approx(1.0, rel=1e-12)


def test_a_contradiction_is_learned_at_once() -> None:
    """A confident neuron that meets the other label: the update brings its mu about to 0, whatever |z| is."""
    network = EBPNetwork((400, 1), dtype=tf.float64)
    x = np.ones((1, 400))
    network.h[0].assign(np.full((400, 1), 0.3))
    mu, sigma2 = network.predict_moments(x)
    z = float(mu[0, 0] / np.sqrt(sigma2[0, 0]))
    assert z > 5
    delta = SignHead().delta(tf.constant([[-1.0]], tf.float64), tf.constant(mu), tf.constant(sigma2))
    assert float(delta[0, 0]) == pytest.approx(-mu[0, 0] / sigma2[0, 0], rel=1 / z**2)


def test_both_loops_follow_one_statement_of_the_update(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With half of Eq. (4.5) the loop that makes up for h later has to make the same wrong network as the plain one.

    100 updates: a segment of 64, made up for by one product, and one of 36, or after large changes one by one.
    """
    X, Y = rng.normal(size=(100, 61)), rng.choice([-1.0, 1.0], (100, 1))
    right = update.weight_increment
    monkeypatch.setattr(update, "weight_increment", lambda v, scaled_delta: 0.5 * right(v, scaled_delta))
    for compiled in (online_epoch, dense_epoch):  # by other tests, with the right one
        compiled.cache_clear()
    plain, lazy, whole = (EBPNetwork((61, 71, 1), dtype=tf.float64, seed=2) for _ in range(3))
    assert MIN_LAZY_WEIGHTS <= 61 * 71
    fit_epoch(plain, X, Y, jit_compile=False)
    fit_epoch(lazy, X, Y, jit_compile=True)
    monkeypatch.undo()
    for compiled in (online_epoch, dense_epoch):
        compiled.cache_clear()
    fit_epoch(whole, X, Y, jit_compile=False)
    np.testing.assert_allclose(lazy.h[0], plain.h[0], atol=1e-5)
    assert np.max(np.abs(whole.h[0] - plain.h[0])) > 0.01
