"""`ebp.estimators.baselines` against slow NumPy versions of the same algorithms, and on data that they have to
learn."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from ebp.estimators.baselines import (
    AROW,
    LEARNING_RATES,
    R_VALUES,
    RIVALS,
    equal_lengths,
    error_percent,
    mean_length,
    tuned_errors,
    tuned_rival,
)
from ebp.network.backpropagation import Backpropagation
from ebp.network.training import epoch_order


def separable(rng: np.random.Generator, num_data: int, num_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels by the sign of a random direction, with a margin."""
    direction = rng.normal(size=num_inputs) / np.sqrt(num_inputs)
    X = rng.normal(size=(4 * num_data, num_inputs))
    X = X[np.abs(X @ direction) > 0.4][:num_data]
    return X, np.where(X @ direction > 0, 1.0, -1.0)[:, None]


def sparse_counts(rng: np.random.Generator, num_data: int, num_inputs: int) -> np.ndarray:
    return rng.poisson(0.2, size=(num_data, num_inputs)) * rng.integers(1, 3, size=num_inputs).astype(float)


def sgd(
    X: np.ndarray, Y: np.ndarray, start: Sequence[np.ndarray], batches: Sequence[np.ndarray], rate: float, loss: str
) -> np.ndarray:
    """Outputs on X of one network, trained by backpropagation as in textbooks."""
    weights = [W.astype(np.float64) for W in start]
    biases = [np.zeros(W.shape[1]) for W in weights]
    scales = [np.sqrt(np.mean(np.sum(X**2, axis=1)) + 1)] + [np.sqrt(len(W) + 1) for W in weights[1:]]

    def forward(x: Any) -> list[Any]:
        v = [x]
        for W, b, s in zip(weights, biases, scales, strict=True):
            u = (v[-1] @ W + b) / s
            v.append(np.tanh(u))
        return [*v[:-1], u]

    for rows in batches:
        *v, u = forward(X[rows])
        y = Y[rows]
        if loss == "squared":
            delta = u - y
        elif y.shape[1] == 1:
            delta = -y / (1 + np.exp(y * u))
        else:
            delta = np.exp(u) / np.exp(u).sum(axis=1, keepdims=True) - 0.5 * (y + 1)
        delta = delta / len(rows)
        for i in reversed(range(len(weights))):
            d_W, d_b = v[i].T @ delta / scales[i], delta.sum(axis=0) / scales[i]
            delta = (1 - v[i] ** 2) * (delta @ weights[i].T) / scales[i]
            weights[i] -= rate * d_W
            biases[i] -= rate * d_b
    return np.asarray(forward(X)[-1])


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    ("sizes", "loss"), [((12, 5, 1), "cross_entropy"), ((12, 5, 4, 3), "cross_entropy"), ((12, 5, 1), "squared")]
)
def test_backpropagation_is_textbook_sgd(
    sizes: tuple[int, ...], loss: str, is_sparse: bool, rng: np.random.Generator
) -> None:
    """float32: 20 steps of relative error 1e-6."""
    X = sparse_counts(rng, 37, sizes[0])
    labels = rng.integers(0, max(2, sizes[-1]), 37)
    Y = 2.0 * labels[:, None] - 1 if sizes[-1] == 1 else 2.0 * np.eye(sizes[-1])[labels] - 1
    orders = [epoch_order(7, epoch, 37) for epoch in range(2)]
    batches = [order[first : first + 4] for order in orders for first in range(0, 37, 4)]
    for rate in (0.1, 0.7):
        network = Backpropagation(sizes, rate, X, loss=loss, batch_size=4, seed=3)
        start = [W.copy() for W in network.weights]
        for epoch in range(2):
            network.fit_epoch(scipy.sparse.csr_matrix(X) if is_sparse else X, Y, seed=7, epoch=epoch)
        np.testing.assert_allclose(network.scores(X), sgd(X, Y, start, batches, rate, loss), rtol=2e-4, atol=2e-5)


def arow(X: np.ndarray, Y: np.ndarray, orders: Sequence[np.ndarray], r: float) -> tuple[np.ndarray, np.ndarray]:
    """AROW for one output with a diagonal covariance, as the paper states it; X has a column of ones."""
    mu, sigma = np.zeros(X.shape[1]), np.ones(X.shape[1])
    for order in orders:
        for row in order:
            x, y = X[row], Y[row]
            if y * (mu @ x) < 1:
                beta = 1 / (x @ (sigma * x) + r)
                alpha = max(0, 1 - y * (x @ mu)) * beta
                mu = mu + alpha * sigma * y * x
                sigma = sigma - beta * (sigma * x) ** 2
    return mu, sigma


@pytest.mark.parametrize("is_sparse", [False, True])
def test_arow_is_the_published_algorithm(is_sparse: bool, rng: np.random.Generator) -> None:
    X = sparse_counts(rng, 60, 15)
    Y = rng.choice([-1.0, 1.0], size=(60, 3))
    orders, with_one = [epoch_order(5, epoch, 60) for epoch in range(2)], np.hstack([X, np.ones((60, 1))])
    for r in (0.1, 1.0, 30.0):
        learner = AROW(15, 3, r)
        for epoch in range(2):
            learner.fit_epoch(scipy.sparse.csr_matrix(X) if is_sparse else X, Y, seed=5, epoch=epoch)
        for c in range(3):
            mu, sigma = arow(with_one, Y[:, c], orders, r)
            np.testing.assert_allclose(learner.mu[:, c], mu, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(learner.sigma[:, c], sigma, rtol=1e-9)
            np.testing.assert_allclose(learner.scores(X)[:, c], with_one @ mu, rtol=1e-9, atol=1e-12)
        assert np.all((learner.sigma > 0) & (learner.sigma <= 1))
        assert learner.scores(scipy.sparse.csr_matrix(X)).shape == (60, 3)


def test_clipped_weights_are_signs(rng: np.random.Generator) -> None:
    """Scores are those of a network with the signs of the weights and its own biases."""
    X, Y = separable(rng, 50, 8)
    network = Backpropagation((8, 6, 1), 1.0, X, clipped=True, seed=1)
    network.fit_epoch(X, Y, seed=0, epoch=0)
    scale = np.sqrt(np.mean(np.sum(X**2, axis=1)) + 1)
    hidden = np.tanh((X @ np.sign(network.weights[0]) + network.biases[0]) / scale)
    expected = (hidden @ np.sign(network.weights[1]) + network.biases[1]) / np.sqrt(7)
    np.testing.assert_allclose(network.scores(X), expected, rtol=1e-4, atol=1e-5)  # float32
    np.testing.assert_allclose(network.scores(scipy.sparse.csr_matrix(X)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["cross_entropy", "squared", "clipped", "arow"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_separable_data_are_learned(method: str, is_sparse: bool, rng: np.random.Generator) -> None:
    """Chance is 50% wrong; the margin leaves room for a few percent."""
    X, Y = separable(rng, 600, 20)
    inputs: Any = scipy.sparse.csr_matrix(X) if is_sparse else X

    def make(value: float, X: Any) -> Any:
        if method == "arow":
            return AROW(20, 1, value)
        loss = "squared" if method == "squared" else "cross_entropy"
        return Backpropagation((20, 30, 1), value, X, loss=loss, clipped=method == "clipped", seed=2)

    tuned = tuned_errors(make, [1e-3, 1.0, 10.0], (inputs[:400], Y[:400]), (inputs[400:], Y[400:]), epochs=3, seed=0)
    assert tuned.value in (1e-3, 1.0, 10.0)
    assert tuned.is_at_edge == (tuned.value != 1.0)
    assert len(tuned.valid_errors) == len(tuned.test_errors) == 3
    assert tuned.test_errors[-1] < (25 if method == "clipped" else 8)


def test_the_choice_is_made_on_validation_rows_alone(rng: np.random.Generator) -> None:
    """Other test labels change the test errors and nothing else; the middle one of equally good values is taken."""
    X, Y = separable(rng, 300, 5)
    train = X[:200], Y[:200]

    def tuned(Y_test: np.ndarray) -> Any:
        return tuned_errors(lambda r, _: AROW(5, 1, r), [0.1, 1.0, 10.0], train, (X[200:], Y_test), epochs=2, seed=4)

    right, wrong = tuned(Y[200:]), tuned(-Y[200:])
    assert (right.value, right.valid_errors) == (wrong.value, wrong.valid_errors)
    np.testing.assert_allclose(np.add(right.test_errors, wrong.test_errors), 100.0)
    constant = tuned_errors(lambda r, _: AROW(5, 1, r), [1.0, 1.0, 1.0], train, (X[200:], Y[200:]), epochs=1, seed=4)
    assert not constant.is_at_edge


def test_error_percent() -> None:
    scores = np.array([[0.0], [-1.0], [2.0], [np.nan]])
    assert error_percent(scores, np.ones((4, 1))) == 50.0
    classes = np.array([[0.1, 0.3, 0.2], [0.9, 0.1, 0.0]])
    Y = 2 * np.eye(3)[[1, 2]] - 1
    assert error_percent(classes, Y) == 50.0


def test_equal_lengths(rng: np.random.Generator) -> None:
    X = sparse_counts(rng, 30, 10)
    X[3] = 0
    for inputs in (X, scipy.sparse.csr_matrix(X)):
        scaled = equal_lengths(inputs, 2.5)
        assert scipy.sparse.issparse(scaled) == scipy.sparse.issparse(inputs)
        lengths = np.linalg.norm(scaled.toarray() if scipy.sparse.issparse(scaled) else scaled, axis=1)
        np.testing.assert_allclose(lengths, np.where(np.any(X, axis=1), 2.5, 0.0), rtol=1e-12)


def test_bad_arguments(rng: np.random.Generator) -> None:
    X, Y = separable(rng, 10, 4)
    with pytest.raises(ValueError, match="loss must be one of 'cross_entropy', 'squared', got 'hinge'"):
        Backpropagation((4, 2, 1), 1.0, X, loss="hinge")
    with pytest.raises(ValueError, match=r"the learning rate must be positive, got 0\.0"):
        Backpropagation((4, 2, 1), 0.0, X)
    with pytest.raises(ValueError, match=r"AROW's r must be positive, got -1\.0"):
        AROW(4, 1, -1.0)
    with pytest.raises(ValueError, match=r"tuning needs training and validation rows, got a fraction of 0.01 of 10"):
        tuned_errors(lambda r, _: AROW(4, 1, r), [1.0], (X, Y), (X, Y), epochs=1, seed=0, valid_fraction=0.01)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rivals_see_rows_of_one_length(is_sparse: bool, rng: np.random.Generator) -> None:
    """The length is the root mean square of the training rows; each rival is the learner of its name."""
    X, Y = separable(rng, 300, 6)
    X *= np.exp(rng.uniform(-4.0, 4.0, size=(300, 1)))
    length = np.sqrt(np.mean([row @ row for row in X[:60]]))
    scaled: Any = length * X / np.linalg.norm(X, axis=1, keepdims=True)
    given: Any = X
    if is_sparse:
        given, scaled = scipy.sparse.csr_matrix(X), scipy.sparse.csr_matrix(scaled)
    assert mean_length(given[:60]) == pytest.approx(length, rel=1e-12)

    def learner(name: str, value: float, X: Any) -> Any:
        if name == "arow":
            return AROW(6, 1, value)
        loss, clipped = "squared" if name == "bp_mse" else "cross_entropy", name == "bp_clipped"
        return Backpropagation((6, 4, 1), value, X, loss=loss, batch_size=5, clipped=clipped, seed=8)

    found = {}
    for name in RIVALS:
        options: Any = {"epochs": 1, "seed": 3}
        found[name] = tuned_rival(
            name, (6, 4, 1), (given[:60], Y[:60]), (given[60:], Y[60:]), batch_size=5, init_seed=8, **options
        )
        grid = R_VALUES if name == "arow" else LEARNING_RATES
        train, test = (scaled[:60], Y[:60]), (scaled[60:], Y[60:])
        expected = tuned_errors(partial(learner, name), grid, train, test, **options)
        assert (found[name].value, found[name].is_at_edge) == (expected.value, expected.is_at_edge)
        np.testing.assert_allclose(found[name].valid_errors, expected.valid_errors)
        np.testing.assert_allclose(found[name].test_errors, expected.test_errors)
        unscaled = tuned_errors(partial(learner, name), grid, train, (X[60:], Y[60:]), **options)
        assert unscaled.test_errors != found[name].test_errors  # so lengths matter here
    assert len({tuned.valid_errors for tuned in found.values()}) == 4
    with pytest.raises(ValueError, match="a rival must be one of bp_ce, bp_mse, bp_clipped, arow, got 'svm'"):
        tuned_rival("svm", (6, 1), (X, Y), (X, Y), epochs=1)
