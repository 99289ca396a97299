"""`ebp.estimators.fold_results`: means, standard errors and best epochs against loops; errors against NumPy."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from ebp import EBPNetwork, errors_percent, fit
from ebp.estimators.fold_results import (
    EpochResult,
    RivalResult,
    network_results,
    probability_scores,
    read_results,
    rival_results,
    summary,
    written_results,
)

#: [seeds, folds, epochs]. By its mean the best epoch is the second of the first seed, though the least error is of the
#: third, and of the other seed the first of two that tie.
ERRORS = np.array(
    [
        [[20.0, 10.0, 4.0], [30.0, 20.0, 26.0], [40.0, 15.0, 21.0]],
        [[12.0, 20.0, 16.0], [18.0, 12.0, 16.0], [15.0, 31.0, 13.0]],
    ]
)


def test_summary_of_several_seeds() -> None:
    """Standard errors are over seeds; each seed has its own best epoch."""
    found = summary(ERRORS)
    last = [statistics.mean([4, 26, 21]), statistics.mean([16, 16, 13])]
    best = [statistics.mean([10, 20, 15]), statistics.mean([12, 18, 15])]
    assert found["best_epochs"] == [2, 1]
    for name, means in (("last", last), ("best", best)):
        assert found[f"{name}_percent"] == pytest.approx(statistics.mean(means), rel=1e-14)
        assert found[f"{name}_standard_error"] == pytest.approx(statistics.stdev(means) / math.sqrt(2), abs=1e-14)
    assert found["errors_percent"] == ERRORS.tolist()


def test_summary_of_one_seed() -> None:
    """Standard errors are over folds, of the best epoch of the mean, not of each fold."""
    found = summary(ERRORS[:1])
    assert found["best_epochs"] == [2]
    assert found["best_percent"] == pytest.approx(15.0, rel=1e-14)
    assert found["best_standard_error"] == pytest.approx(statistics.stdev([10, 20, 15]) / math.sqrt(3), rel=1e-14)
    assert found["last_percent"] == pytest.approx(17.0, rel=1e-14)
    assert found["last_standard_error"] == pytest.approx(statistics.stdev([4, 26, 21]) / math.sqrt(3), rel=1e-14)


def test_one_number_has_no_standard_error() -> None:
    found = summary(ERRORS[:1, :1])
    assert found["last_standard_error"] is found["best_standard_error"] is None
    assert (found["last_percent"], found["best_percent"], found["best_epochs"]) == (4.0, 4.0, [3])


def test_results_of_networks() -> None:
    """In the order in which units are done: seed by seed, fold by fold."""
    seconds = np.arange(18.0).reshape(2, 3, 3)
    results = [
        EpochResult(
            "binary",
            seed + 5,
            fold,
            epoch,
            seconds[seed, fold, epoch],
            {name: ERRORS[seed, fold, epoch] + add for add, name in enumerate(("D", "P", "votes"))},
            log_loss_nats=float(epoch * (1 + seed + fold)),
            calibration_error_percent=10.0 * epoch,
        )
        for seed, fold, epoch in np.ndindex(2, 3, 3)
    ]
    found = network_results(results, 7)
    assert list(found) == ["binary D", "binary P", "binary 7 votes"]
    for offset, (name, result) in enumerate(found.items()):
        extra = {"log_loss_nats": 5.0, "calibration_error_percent": 20.0} if name == "binary P" else {}
        assert result == {**summary(np.asarray(ERRORS + offset, float)), "seconds_per_epoch": 8.5, **extra}
    assert read_results(written_results(results)) == results


def test_results_of_rivals() -> None:
    values = [[1.0, 3.0, 10.0], [3.0, 3.0, 0.3]]
    results = [
        RivalResult("arow", seed, fold, 1.0 + 3 * seed + fold, values[seed][fold], fold == 2, tuple(ERRORS[seed, fold]))
        for seed, fold in np.ndindex(2, 3)
    ]
    assert rival_results(results) == {
        **summary(ERRORS),
        "tuned_values": values,
        "folds_at_edge_of_grid": 2,
        "seconds_per_fold": 3.5,
    }
    assert read_results(written_results(results)) == results


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
