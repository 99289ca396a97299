"""`ebp.estimators.estimators`: errors and scores against NumPy; what is said of a posterior."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from ebp import EBPNetwork, errors_percent, fit
from ebp.estimators.estimators import error_percent, posterior_scalars, posterior_shapes, probability_scores


def test_error_percent() -> None:
    scores = np.array([[0.0], [-1.0], [2.0], [np.nan]])
    assert error_percent(scores, np.ones((4, 1))) == 50.0
    classes = np.array([[0.1, 0.3, 0.2], [0.9, 0.1, 0.0]])
    Y = 2 * np.eye(3)[[1, 2]] - 1
    assert error_percent(classes, Y) == 50.0


def _outputs(X: np.ndarray, weights: list[tuple[Any, Any]]) -> np.ndarray:
    """u_L of one network of signs, up to a factor."""
    v = X
    for W, b in weights[:-1]:
        v = np.where(v @ W + b >= 0, 1.0, -1.0)
    W, b = weights[-1]
    return v @ W + b


@pytest.mark.parametrize("num_classes", [2, 3])
def test_errors_of_each_output(num_classes: int, rng: np.random.Generator) -> None:
    """D by the most probable weights, P by the signs of mu / sigma, votes by the majority of the draws."""
    labels = rng.integers(0, num_classes, 80)
    X = rng.normal(size=(80, 6)) + 0.6 * np.eye(6)[labels]
    Y = np.where(labels == 1, 1.0, -1.0)[:, None] if num_classes == 2 else 2 * np.eye(3)[labels] - 1
    head = "binary" if num_classes == 2 else "multiclass"
    network = EBPNetwork((6, 5, Y.shape[1]), head=head, dtype="float64", seed=4)
    fit(network, X, Y, epochs=1)

    def percent(scores: np.ndarray) -> float:
        chosen = scores[:, 0] >= 0 if num_classes == 2 else scores.argmax(axis=1)
        return 100.0 * sum(int(a) != int(b) for a, b in zip(chosen, labels, strict=True)) / len(labels)

    votes = np.zeros(Y.shape)
    for i in range(5):
        u = _outputs(X, network.sample_weights(tf.random.fold_in(tf.constant([0, 9]), i)))
        votes += np.where(u >= 0, 1, -1) if num_classes == 2 else 2 * np.eye(3)[u.argmax(axis=1)] - 1
    mu, sigma2 = network.predict_moments(X)
    expected = {"D": percent(_outputs(X, network.mode_weights())), "P": percent(mu / np.sqrt(sigma2))}
    assert errors_percent(network, X, Y) == pytest.approx(expected, rel=1e-12)
    found = errors_percent(network, X, Y, num_votes=5, seed=9)
    assert found == pytest.approx({**expected, "votes": percent(votes)}, rel=1e-12)
    assert len(set(found.values())) > 1  # else they could be mixed up


def test_errors_of_other_targets_are_none() -> None:
    network = EBPNetwork((2, 1))
    X = np.eye(2)
    assert errors_percent(network, X, [1, -1]) == errors_percent(network, X, np.array([[1.0], [-1.0]]))
    with pytest.raises(ValueError, match="got 0, 1; map 0 to -1"):  # all zeros would be wrong
        errors_percent(network, X, [0, 1])
    with pytest.raises(ValueError, match="as many rows, got 2 and 1"):
        errors_percent(network, X, [1])


def test_scores_of_probabilities(rng: np.random.Generator) -> None:
    """Two classes by hand: Phi(mu / sigma), and all confidences in the bins of a loop."""
    X = rng.normal(size=(50, 3))
    y = np.where(X[:, 0] + rng.normal(size=50) > 0, 1.0, -1.0)
    network = EBPNetwork((3, 4, 1), dtype="float64")
    fit(network, X, y, epochs=2)
    mu, sigma2 = network.predict_moments(X)
    p = stats.norm.cdf(y * (mu / np.sqrt(sigma2))[:, 0])  # of the right label
    loss, error = probability_scores(network, X, y[:, None])
    assert loss == pytest.approx(-np.mean(np.log(p)), rel=1e-12)
    bins: dict[int, list[float]] = {}
    for one in p:
        bins.setdefault(min(int(max(one, 1 - one) * 15), 14), []).append(max(one, 1 - one) - (one > 0.5))
    assert error == pytest.approx(100 * sum(abs(sum(gaps)) for gaps in bins.values()) / 50, rel=1e-9)


def test_posterior(rng: np.random.Generator) -> None:
    """Entropy in nats over all weights; decided: variance below a hundredth of the prior's, 1 for signs."""
    network = EBPNetwork((30, 20, 2), ["binary", "real"], head="multiclass", dtype="float64")
    for h in network.h:
        h.assign(rng.normal(scale=3.0, size=h.shape))
    found = posterior_scalars(network)
    assert list(found) == ["layer_1/entropy_nats", "layer_1/decided_percent", "layer_2/entropy_nats"]
    p = 1 / (1 + np.exp(-2 * network.h[0].numpy()))
    entropy = -np.mean(p * np.log(p) + (1 - p) * np.log1p(-p))
    assert found["layer_1/entropy_nats"] == pytest.approx(entropy, rel=1e-9)
    decided = [4 * q * (1 - q) < 0.01 for q in p.ravel()]
    assert found["layer_1/decided_percent"] == pytest.approx(100 * np.mean(decided), rel=1e-12)
    assert 10 < found["layer_1/decided_percent"] < 90
    assert found["layer_2/entropy_nats"] == pytest.approx(network.entropy()[1], rel=1e-12)


def test_histograms_take_some_of_many_weights(rng: np.random.Generator) -> None:
    network = EBPNetwork((500, 450, 1))
    shapes = posterior_shapes(network)
    assert list(shapes) == ["layer_1/h", "layer_2/h"]
    np.testing.assert_array_equal(shapes["layer_1/h"], network.h[0].numpy().reshape(-1)[::3])  # of 225,000
    np.testing.assert_array_equal(shapes["layer_2/h"], network.h[1].numpy().reshape(-1))
