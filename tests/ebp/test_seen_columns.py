"""Columns of sparse inputs that never occur cost nothing, and change nothing."""

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from ebp import EBPClassifier, EBPGaussianClassifier, EBPRegressor
from ebp.estimators.inputs import seen_columns
from ebp.estimators.inputs.seen_columns import MIN_ROOM, SeenColumns

NUM_COLUMNS = 2**20


@pytest.fixture(scope="module")
def documents() -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """100 rows of 30 of 60 words, the first 20 of which tell the class: hashed, and the same in columns 0 to 59;
    labels; the hashed places of the words, in order."""
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    words = rng.integers(0, 60, (100, 30))
    words[:, :4] = rng.integers(0, 10, (100, 4)) + 10 * y[:, None]
    plain = scipy.sparse.csr_matrix((np.ones(3000), words.ravel(), np.arange(0, 3001, 30)), shape=(100, MIN_ROOM))
    plain.sum_duplicates()
    places = np.sort(rng.choice(NUM_COLUMNS, 60, replace=False))
    hashed = scipy.sparse.csr_matrix((plain.data, places[plain.indices], plain.indptr), shape=(100, NUM_COLUMNS))
    return hashed, plain, y, places


def test_columns_that_never_occur_change_nothing_and_cost_nothing(documents: Any) -> None:
    hashed, plain, y, places = documents
    options: dict[str, Any] = {"hidden": 3, "epochs": 1, "batch_size": 10, "random_state": 1}
    found, wanted = (EBPClassifier(**options).fit(X, y) for X in (hashed, plain))
    assert len(pickle.dumps(found)) < 1.1 * len(pickle.dumps(wanted))  # of 2^14 columns
    assert found.n_features_in_ == NUM_COLUMNS
    np.testing.assert_array_equal(found.decision_function(hashed), wanted.decision_function(plain))
    # What is asked for by name has all columns.
    np.testing.assert_array_equal(np.flatnonzero(found.coding_.factor), places)
    assert found.network_.layer_sizes == (NUM_COLUMNS, 3, 1)
    np.testing.assert_array_equal(found.network_.h[0].numpy()[places], wanted.network_.h[0].numpy()[:60])


def test_columns_of_new_rows_get_room(documents: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream whose second half has words that the first one lacks, with room for 32 columns, then for 64."""
    monkeypatch.setattr(seen_columns, "MIN_ROOM", 16)
    hashed, _, y, places = documents
    is_early = np.isin(hashed.indices, places[5:25])
    early = hashed.copy()
    early.data[~is_early] = 0.0
    early.eliminate_zeros()
    model = EBPClassifier(3, batch_size=10, calibrate=False, random_state=1).partial_fit(early, y, classes=[0, 1])
    assert model._network.layer_sizes[0] == 32
    before = model.decision_function(early)
    model._make_room(hashed)
    assert model._network.layer_sizes[0] == 64
    np.testing.assert_allclose(model.decision_function(early), before, rtol=1e-9)
    for _ in range(4):
        model.partial_fit(hashed, y)
    assert model.score(hashed, y) > 0.9


@pytest.mark.parametrize("kind", [EBPRegressor, EBPGaussianClassifier])
def test_networks_of_second_order_have_no_weights_for_them(kind: Any, documents: Any) -> None:
    hashed, plain, y, _ = documents
    found, wanted = (kind(2, epochs=2, max_count=1).fit(X, y) for X in (hashed, plain[:, :60].toarray()))
    np.testing.assert_array_equal(found.predict(hashed), wanted.predict(plain[:, :60].toarray()))
    np.testing.assert_array_equal(found.predict(hashed[:2].toarray()), found.predict(hashed[:2]))
    assert found.n_features_in_ == NUM_COLUMNS
    assert len(pickle.dumps(found)) < 50_000
    found.partial_fit(hashed, y)


@pytest.mark.parametrize("kind", [EBPRegressor, EBPGaussianClassifier])
@pytest.mark.parametrize("begins_with_fit", [False, True])
def test_networks_of_second_order_make_room_for_new_columns(kind: Any, begins_with_fit: bool, documents: Any) -> None:
    """A stream whose second half has 40 words that the first one lacks: what is known of others stays, but that each of
    more columns is thought to say less (a tenth of what the targets vary by, here)."""
    hashed, _, y, places = documents
    is_early = np.isin(hashed.indices, places[5:25])
    early = hashed.copy()
    early.data[~is_early] = 0.0
    early.eliminate_zeros()
    options = {} if kind is EBPRegressor else {"classes": [0, 1]}
    model = kind(3, epochs=2, max_count=1)
    model = model.fit(early, y) if begins_with_fit else model.partial_fit(early[:20], y[:20], **options)
    if not begins_with_fit:
        model.partial_fit(early, y)  # of the regressor: with its first 30 rows, which were kept
    predict = model.predict if kind is EBPRegressor else lambda X: model.predict_proba(X)[:, 1]
    before = predict(early)
    model._make_room(hashed)
    assert model._columns.num_seen == 60
    np.testing.assert_allclose(predict(early), before, atol=0.1)
    for _ in range(4):
        model.partial_fit(hashed, y)
    assert len(pickle.dumps(model)) < 40_000
    assert np.mean((model.predict(hashed) > 0.5) == y) > 0.9


def test_places(documents: Any) -> None:
    hashed, plain, _, _ = documents
    first, second = hashed[:10], hashed[10:]
    seen = SeenColumns.of(first)
    assert seen.room == MIN_ROOM
    numbers = np.unique(first.indices)
    inputs = scipy.sparse.csr_matrix(seen.inputs(hashed))
    np.testing.assert_array_equal(inputs[:, : len(numbers)].toarray(), hashed[:, numbers].toarray())
    seen = seen.after(second)
    inputs = scipy.sparse.csr_matrix(seen.inputs(hashed))
    assert inputs.sum() == plain.sum()
    np.testing.assert_array_equal(seen.spread(inputs[3].toarray()[0]), hashed[3].toarray()[0])
    # All are kept of dense inputs, of few columns, and where most of them occur.
    for X in (np.zeros((2, 5)), plain, scipy.sparse.csr_matrix(np.ones((1, 2 * MIN_ROOM)))):
        assert SeenColumns.of(X).numbers is None
    none = SeenColumns.of(scipy.sparse.csr_matrix((3, NUM_COLUMNS)))
    assert none.numbers is not None
    np.testing.assert_array_equal(none.numbers, [0])
    assert not none.inputs(hashed).sum()
