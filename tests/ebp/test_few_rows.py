"""The forward pass of few rows by NumPy against that of TensorFlow."""

import numpy as np
import pytest

from ebp import EBPClassifier, EBPNetwork, fit
from ebp.network.few_rows import FewRows


@pytest.mark.parametrize(
    ("sizes", "weights", "biases"),
    [((5, 4, 3, 2), "binary", True), ((5, 3), "real", False), ((5, 4, 1), ("ternary", "real"), True)],
)
def test_moments(sizes: tuple[int, ...], weights: str, biases: bool, rng: np.random.Generator) -> None:
    head = "binary" if sizes[-1] == 1 else "multiclass"
    network = EBPNetwork(sizes, weights, head=head, biases=biases, seed=3)
    X = rng.normal(size=(20, 5)).astype(np.float32)
    fit(network, X, np.where(rng.random((20, sizes[-1])) < 0.5, -1.0, 1.0), epochs=1, batch_size=10)
    X[0] = 0.0
    for found, wanted in zip(FewRows.of(network).moments(X), network.predict_moments(X, dtype=np.float64), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


def test_a_row_needs_no_tensorflow(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after more is learned."""
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] > 0).astype(int)
    model = EBPClassifier(4, batch_size=10, random_state=0).partial_fit(X[:30], y[:30], classes=[0, 1])
    many = [model.predict_proba(X)]
    few = [model.predict_proba(X[:10])]
    model.partial_fit(X[30:], y[30:])
    many.append(model.predict_proba(X))
    monkeypatch.setattr(EBPNetwork, "predict_moments", None)
    few.append(model.predict_proba(X[:10]))
    for found, wanted in zip(few, many, strict=True):
        np.testing.assert_allclose(found, wanted[:10], rtol=1e-10)
    assert np.max(np.abs(few[1] - few[0])) > 1e-3
