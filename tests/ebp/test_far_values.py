"""`ebp.estimators.inputs.far_values`: which values are far, by hand; and a fit hardly minds a slip of the pen."""

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from ebp import EBPClassifier, EBPGaussianClassifier, EBPRegressor
from ebp.estimators.inputs.far_values import EDGE, FAR, edges


def test_values_are_far_by_the_deviation_of_the_others(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 3))
    assert edges(X) is None
    ordered = np.sort(X[:, 1])
    deviation = np.std(np.clip(X[:, 1], ordered[4], ordered[-5]))
    X[np.argmax(X[:, 1]), 1] = ordered[-5] + 0.99 * FAR * deviation
    assert edges(X) is None
    X[np.argmax(X[:, 1]), 1] = ordered[-5] + 1.01 * FAR * deviation
    expected = np.array([ordered[4] - EDGE * deviation, ordered[-5] + EDGE * deviation])
    for unit in (1.0, 1e-200, 1e200):
        found = edges(X * unit)
        assert found is not None
        np.testing.assert_allclose(found[:, 1], expected * unit)
        assert np.all(np.isinf(found[:, [0, 2]]))
    found = edges(-X)
    assert found is not None
    np.testing.assert_allclose(found[:, 1], -expected[::-1])


def test_rare_events_heavy_tails_and_few_rows_have_no_far_values(rng: np.random.Generator) -> None:
    events = (np.arange(300) % 100 == 0).astype(float)
    counts = np.where(np.arange(300) % 5 == 0, 1.0, 0.0) + 1000.0 * events
    sentinel = np.where(np.arange(300) % 20 == 0, -999.0, rng.normal(size=300))  # more than slips
    tails = np.exp(rng.normal(size=300))
    X = np.column_stack([events, counts, sentinel, tails, np.ones(300)])
    assert edges(X) is None
    X[3, 3] = 1e9
    assert edges(X) is not None
    assert edges(X[:20]) is None
    assert edges(X[:0]) is None
    assert edges(X[:, :0]) is None


@pytest.mark.parametrize("where", ["a row", "an input"])
@pytest.mark.parametrize(
    "model",
    [EBPRegressor(20, epochs=10), EBPGaussianClassifier(20), EBPClassifier(20, batch_size=10)],
    ids=lambda model: type(model).__name__,
)
def test_a_slip_of_the_pen_is_hardly_noticed(model: Any, where: str, rng: np.random.Generator) -> None:
    X = rng.normal(size=(600, 4))
    f = X[:, 0] + 0.3 * rng.normal(size=600)
    y = f if isinstance(model, EBPRegressor) else f > 0

    def score() -> float:
        model.fit(X[:200], y[:200])
        if isinstance(model, EBPRegressor):
            return float(np.mean(model.log_density(X[200:], y[200:])))
        return float(np.mean(model.predict_log_proba(X[200:])[np.arange(400), y[200:].astype(int)]))

    before = score()
    X[7, slice(None) if where == "a row" else 0] = 1e6
    assert score() > before - 0.1
    if not isinstance(model, EBPClassifier):
        near = X[7:8].copy()
        near[near == 1e6] = 8.0  # beyond the edge, too
        np.testing.assert_array_equal(model.predict(X[7:8]), model.predict(near))


@pytest.mark.parametrize("num_targets", [1, 2])
def test_targets_far_from_all_others_are_left_out(num_targets: int, rng: np.random.Generator) -> None:
    """And named; the fit is that without these rows, but for the order of the others. They ruled all of it before."""
    X = rng.normal(size=(600, 4))
    y = X[:, :num_targets] + 0.3 * rng.normal(size=(600, num_targets))
    y = y[:, 0] if num_targets == 1 else y
    model = EBPRegressor(20, epochs=10, max_count=3)
    before = np.mean(model.fit(X[:200], y[:200]).log_density(X[200:], y[200:]))
    far = y[:200].copy()
    far.reshape(200, -1)[[3, 50], [0, num_targets - 1]] = -9999.0, 1e5
    with pytest.warns(ConvergenceWarning, match=r"2 of 200 targets are far from all others \(-9999, 100000"):
        model.fit(X[:200], far)
    assert np.mean(model.log_density(X[200:], y[200:])) > before - 0.05
    # With weights and groups, too; a far target of no weight is no news.
    weight = np.where(np.arange(200) == 3, 0.0, 1.0)
    with pytest.warns(ConvergenceWarning, match="1 of 200 targets"):
        EBPRegressor(5, epochs=2).fit(X[:200], far, sample_weight=weight, groups=np.arange(200) // 4)
