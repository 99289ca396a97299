"""Joint posteriors of last layers: exact moments, classes that come later, and borders that bend."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.special

from ebp.estimators.gaussian_classifier import EBPGaussianClassifier, sign_derivatives
from ebp.estimators.regressor import EBPRegressor
from ebp.estimators.streams.one_by_one import OneByOne
from ebp.second_order.joint import JointNetwork
from ebp.second_order.noise import Noise


def test_the_moments_after_a_row_are_exact(rng: np.random.Generator) -> None:
    """By a grid over the two weights of a linear model."""
    network = JointNetwork.start(1, 0, 1, rng)
    network = network.after(np.array([[0.7], [-1.2]]), np.array([[1.0], [1.0]]), sign_derivatives, None)
    before_m, before_S = network.mean[0, 0], network.cov[0, 0]
    after = network.after(np.array([[0.4]]), np.array([[-1.0]]), sign_derivatives, None)
    grid = np.linspace(-9.0, 9.0, 601)
    w = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    distance = w - before_m
    log_p = -0.5 * np.sum(distance @ np.linalg.inv(before_S) * distance, axis=1)
    p = np.exp(log_p) * scipy.special.ndtr(-(w @ np.array([0.4, 1.0])))  # u = w'f, and noise N(0, 1)
    p /= p.sum()
    mean = p @ w
    np.testing.assert_allclose(after.mean[0, 0], mean, atol=1e-6)
    np.testing.assert_allclose(after.cov[0, 0], (w - mean).T @ (p[:, None] * (w - mean)), atol=1e-6)


def test_a_row_of_weight_three_is_three_rows(rng: np.random.Generator) -> None:
    """With a likelihood that is normal, where nothing is approximated."""
    noise = Noise.start(1)
    network = JointNetwork.start(3, 4, 1, rng)
    x, y = rng.normal(size=(1, 3)), np.array([[0.8]])
    once = network.after(x, y, noise.derivatives, np.array([3.0]))
    thrice = network.after(np.repeat(x, 3, axis=0), np.repeat(y, 3, axis=0), noise.derivatives, None)
    np.testing.assert_allclose(once.mean, thrice.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(once.cov, thrice.cov, rtol=1e-10, atol=1e-12)


def crescents(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    labels = rng.integers(0, 2, num_rows)
    side = np.where(labels == 1, 1.0, -1.0)
    angle = rng.uniform(0.0, np.pi, num_rows)
    X = np.stack([side * (np.cos(angle) - 0.5), side * (np.sin(angle) - 0.25)], axis=1)
    return X + 0.2 * rng.normal(size=X.shape), labels


def test_two_inputs_with_a_border_that_bends(rng: np.random.Generator) -> None:
    """No straight line is right on more than nine rows in ten."""
    X, y = crescents(rng, 1000)
    model = EBPGaussianClassifier()
    for start in range(0, 700, 5):
        model.partial_fit(X[start : start + 5], y[start : start + 5], classes=[0, 1])
    assert model.score(X[700:], y[700:]) > 0.94
    assert -np.mean(model.predict_log_proba(X[700:])[np.arange(300), y[700:]]) < 0.2


@pytest.mark.parametrize("names", [[0, 1, 2, 3], [3, 1, 2, 0], [1, 0, 3, 2]])
def test_classes_that_come_later(names: list[int], rng: np.random.Generator) -> None:
    """They are what they would be, had they been named in advance; whatever their order."""
    X = rng.normal(size=(90, 3))
    number = (X[:, 0] > 0).astype(int) + 2 * (X[:, 1] > 0)
    number[:30] = 0
    number[30:45] = np.minimum(number[30:45], 1)
    number[45:60] = np.minimum(number[45:60], 2)
    y = np.array(names)[number]
    late, early = EBPGaussianClassifier(20), EBPGaussianClassifier(20)
    for start in range(0, 90, 3):
        rows = slice(start, start + 3)
        late.partial_fit(X[rows], y[rows])
        early.partial_fit(X[rows], y[rows], classes=[0, 1, 2, 3])
        if start < 30:
            np.testing.assert_array_equal(late.predict_proba(X[rows]), 1.0)
    assert late.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(late.predict_proba(X), early.predict_proba(X), rtol=1e-8)
    with pytest.raises(ValueError, match="labels"):
        early.partial_fit(X[:1], [7])
    for model in (late, early):  # else 0 would become "0"
        with pytest.raises(ValueError, match=r"labels must be like \[0, 1, 2, 3\], got \['zero'\]"):
            model.partial_fit(X[:1], ["zero"])
    assert late.classes_.tolist() == [0, 1, 2, 3]


def test_many_inputs_have_single_posteriors(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(4, 900)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        EBPGaussianClassifier().partial_fit(X, y)
    model = EBPGaussianClassifier(5).partial_fit(X, y, classes=[0, 1])
    assert not isinstance(model.posteriors_[0], JointNetwork)


def test_sparse_rows_are_like_dense_ones(rng: np.random.Generator) -> None:
    X = rng.poisson(0.4, (60, 6)).astype(np.float64)
    y = (X[:, 0] > X[:, 1]).astype(int)
    for model in (EBPGaussianClassifier(5, epochs=2, max_count=1), EBPRegressor(5, epochs=2, max_count=1)):
        dense = model.fit(X, y).predict(X)
        sparse = model.fit(scipy.sparse.csr_matrix(X), y).predict(scipy.sparse.csr_matrix(X))
        np.testing.assert_array_equal(sparse, dense)
    wide = scipy.sparse.vstack([np.ones((1, 2**20)), scipy.sparse.csr_matrix((499, 2**20))], format="csr")
    with pytest.raises(
        ValueError, match="a dense matrix of 500 x 1048576 numbers would be too large; use EBPClassifier"
    ):
        EBPRegressor().partial_fit(wide, np.arange(500))


def test_one_scale_for_all_inputs(rng: np.random.Generator) -> None:
    """Inputs of one deviation but for a factor: a common scale keeps the factor, and both learn from streams, too."""
    X = rng.normal(size=(80, 4)) * np.array([1.0, 1.0, 1.0, 1e-3])
    y = (X[:, 0] > 0).astype(int)
    moved = X + np.array([0.0, 0.0, 0.0, 1e-2])
    for learn in (EBPGaussianClassifier.fit, EBPGaussianClassifier.partial_fit):
        common, own = EBPGaussianClassifier(5, max_count=1, common_scale=True), EBPGaussianClassifier(5, max_count=1)
        changes = [
            np.max(np.abs(model.predict_proba(moved) - model.predict_proba(X)))
            for model in (learn(common, X, y), learn(own, X, y))
        ]
        assert changes[0] < 0.05 * changes[1]


def test_rows_as_dictionaries(rng: np.random.Generator) -> None:
    X, y = crescents(rng, 40)
    plain, model = EBPGaussianClassifier(5), OneByOne(EBPGaussianClassifier(5))
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    for row, label in zip(X, np.array(["no", "yes"])[y], strict=True):
        plain.partial_fit(row[None], [label])
        model.learn_one({"a": row[0], "b": row[1]}, str(label))
    expected = dict(zip(["no", "yes"], plain.predict_proba(X[:1])[0], strict=True))
    assert model.predict_proba_one({"b": X[0, 1], "a": X[0, 0]}) == pytest.approx(expected)
    assert model.predict_one({"a": X[0, 0], "b": X[0, 1]}) == plain.predict(X[:1])[0]
    mean: dict[str, Any] = {"a": X[:, 0].mean(), "b": 0.3}
    assert model.predict_proba_one({"b": 0.3}) == pytest.approx(model.predict_proba_one(mean))
    with pytest.warns(UserWarning, match="features that the first row did not have are left out, such as 'c'"):
        model.predict_one({"a": 0.0, "b": 0.0, "c": 1.0})


def test_numbers_as_dictionaries(rng: np.random.Generator) -> None:
    model = OneByOne(EBPRegressor(5))
    assert model.predict_one({"a": 0.0}) == 0.0
    for x in rng.normal(size=12):
        model.learn_one({"a": x}, 3.0 * x)
    assert isinstance(model.predict_one({"a": 0.5}), float)


def test_a_row_that_is_refused_is_not_in_the_means(rng: np.random.Generator) -> None:
    model = OneByOne(EBPRegressor(5))
    with pytest.raises(ValueError, match="NaN"):
        model.learn_one({"wrong": np.nan}, 1.0)
    model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(ValueError, match="NaN"):
        model.learn_one({"a": np.nan}, 1.0)
    assert model.predict_one({}) == model.predict_one({"a": 1.0})
