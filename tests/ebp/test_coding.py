"""`ebp.network.coding`: what each coding does, for arrays and for sparse matrices."""

import json
from typing import Any, get_args

import numpy as np
import pytest
import scipy.sparse

from ebp.network.coding import InputCoding, Kind, Moments, common_fraction_bits, fraction_bits, is_sparse, recommended

KINDS = get_args(Kind)


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    """Counts, with a column of zeros and one of threes."""
    X = rng.poisson(0.7, size=(50, 6)).astype(float)
    X[:, 2], X[:, 4] = 0, 3
    return X


def test_codings(X: np.ndarray, rng: np.random.Generator) -> None:
    new = rng.poisson(0.7, size=(20, 6)).astype(float)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    varies = deviation > 0
    safe = np.where(varies, deviation, 1.0)
    expected = {
        "raw": new,
        "scaled": varies * new / safe,
        "root": varies * new / np.sqrt(safe),
        "common": varies * new / np.sqrt(X.var(axis=0).mean()),
        "zscore": varies * (new - mean) / safe,
        "centred": varies * (new - mean) / np.sqrt(X.var(axis=0).mean()),
        "sign": np.where(new > mean, 1, -1),
    }
    for kind in KINDS:
        coded = InputCoding.fit(kind, X).transform(new)
        assert coded.dtype == np.float32
        np.testing.assert_allclose(coded, expected[kind], rtol=0, atol=2.0**-9 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_is_as_dense(kind: str, X: np.ndarray) -> None:
    sparse = scipy.sparse.csr_matrix(X)
    coding = InputCoding.fit(kind, sparse)
    coded = coding.transform(sparse)
    assert is_sparse(coded) == (kind in ("raw", "scaled", "root", "common"))
    np.testing.assert_array_equal(coded.toarray() if is_sparse(coded) else coded, InputCoding.fit(kind, X).transform(X))
    np.testing.assert_array_equal(sparse.toarray(), X)  # the argument is left alone


@pytest.mark.parametrize("kind", ["scaled", "root", "common", "zscore", "centred"])
def test_sums_are_exact_in_any_order(kind: str, rng: np.random.Generator) -> None:
    """The reason for rounding to multiples of 2^-8."""
    X = rng.normal(size=(30, 500)) * rng.uniform(0.01, 100, size=500)
    coded = InputCoding.fit(kind, X).transform(X)
    bits = fraction_bits(coded)
    assert bits is not None
    assert bits <= 8
    weights = rng.choice([-1, 1], size=500).astype(np.float32)
    order = rng.permutation(500)
    exact = (coded.astype(np.float64) * weights).sum(axis=1)
    np.testing.assert_array_equal(coded @ weights, exact)
    np.testing.assert_array_equal(coded[:, order] @ weights[order], exact)


def test_fraction_bits() -> None:
    assert fraction_bits(np.array([0, 3, -5])) == 0
    assert fraction_bits(np.array([0.5, 3])) == 1
    assert fraction_bits(scipy.sparse.csr_matrix([[0.0, 0.25]])) == 2
    assert fraction_bits(np.array([0.1])) is None
    assert fraction_bits(np.array([np.nan])) is None


@pytest.mark.parametrize("kind", KINDS)
def test_json(kind: str, X: np.ndarray) -> None:
    coding = InputCoding.fit(kind, X)
    again = InputCoding.from_json(json.loads(json.dumps(coding.to_json())))
    np.testing.assert_array_equal(again.transform(X), coding.transform(X))


def test_errors(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"input_coding must be one of raw, scaled, .*got 'log'"):
        InputCoding.fit("log", X)
    for other in (X[0], X[:0]):
        with pytest.raises(ValueError, match=r"must be of shape \[N, D\], with at least one row"):
            InputCoding.fit("zscore", other)
    coding = InputCoding.fit("zscore", X.tolist())
    np.testing.assert_array_equal(coding.transform(X.tolist()), coding.transform(X))
    with pytest.raises(ValueError, match=r"must be of shape \[N, 6\], got \[2, 5\]"):
        coding.transform(np.zeros((2, 5)))
    wide: Any = scipy.sparse.csr_matrix((20_000, 30_000))
    with pytest.raises(ValueError, match="input_coding=zscore would make a dense matrix of 20000 x 30000 numbers"):
        InputCoding.fit("zscore", wide).transform(wide)
    with pytest.raises(ValueError, match="the stored input coding is damaged"):
        InputCoding.from_json({"kind": "zscore", "mean": [0.0]})
    with pytest.raises(ValueError, match="the stored input coding is damaged"):
        InputCoding.from_json({**coding.to_json(), "factor": [1.0]})


def test_nothing_is_learned_from_what_is_transformed(X: np.ndarray, rng: np.random.Generator) -> None:
    """Rows are coded one by one, by the numbers of the training part."""
    new = rng.normal(size=(7, 6))
    for kind in KINDS:
        coding = InputCoding.fit(kind, X)
        rows = np.concatenate([coding.transform(row[None]) for row in new])
        np.testing.assert_array_equal(coding.transform(new), rows)


def test_common_fraction_bits() -> None:
    """The finest of all parts."""
    halves, eighths = np.array([0.5, 3]), scipy.sparse.csr_matrix([[0.0, 0.125]])
    assert common_fraction_bits(halves) == 1
    assert common_fraction_bits(halves, eighths) == common_fraction_bits(eighths, halves) == 3
    with pytest.raises(ValueError, match=r"multiples of 2\^-24 at least, and these are not; use an input_coding other"):
        common_fraction_bits(halves, np.array([0.1]))


def test_recommended(X: np.ndarray) -> None:
    assert [recommended(name, X) for name in ("mnist", "spamassassin", "mine")] == ["common", "raw", "zscore"]
    assert recommended("mine", scipy.sparse.csr_matrix(X)) == "root"


@pytest.mark.parametrize("sparse", [False, True])
def test_moments_of_parts_are_those_of_all(sparse: bool, X: np.ndarray) -> None:
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    parts = [Moments.of(rows[a:b]) for a, b in ((0, 1), (1, 20), (20, 50))]
    found, expected = parts[0] + parts[1] + parts[2], Moments.of(rows)
    assert found.num_rows == 50
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation, X.std(axis=0), rtol=1e-10, atol=1e-15)
    np.testing.assert_array_equal(found.varies, expected.varies)
    np.testing.assert_array_equal(found.varies, X.std(axis=0) > 0)


def test_a_column_far_from_zero_varies(rng: np.random.Generator) -> None:
    """Seconds since 1970 within a minute: their squares differ by less than float64 can tell."""
    X = 1.7e9 + rng.uniform(0, 60, size=(200, 1))
    coded = InputCoding.fit("zscore", X).transform(X)
    np.testing.assert_allclose(coded, (X - X.mean()) / X.std(), atol=2.0**-8)
    parts = Moments.of(X[:1]) + Moments.of(X[1:2])
    assert parts.varies.all()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e200, 1e300])
def test_columns_of_any_size_are_coded_alike(factor: float, sparse: bool, rng: np.random.Generator) -> None:
    """No square is taken before a column is divided by its size."""
    X = rng.normal(size=(40, 3)) * (rng.random((40, 3)) < 0.7)
    kinds = ["scaled", "common"] if sparse else ["scaled", "common", "zscore", "centred", "sign"]
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    for kind in kinds:
        expected = InputCoding.fit(kind, rows).transform(rows)
        found = InputCoding.fit(kind, rows * factor).transform(rows * factor)
        difference = found - expected
        assert np.max(np.abs(difference.toarray() if sparse else difference)) <= 2.0**-8
    parts = Moments.of(rows[:10] * factor) + Moments.of(rows[10:] * factor)
    np.testing.assert_allclose(parts.deviation, X.std(axis=0) * factor, rtol=1e-12)


def test_weighted_moments_are_those_of_repeated_rows(rng: np.random.Generator) -> None:
    X, weight = rng.normal(size=(20, 3)), rng.integers(0, 4, 20).astype(float)
    expected = Moments.of(np.repeat(X, weight.astype(int), axis=0))
    for rows in (X, scipy.sparse.csr_matrix(X)):
        found = Moments.of(rows, weight)
        assert found.num_rows == expected.num_rows
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.deviation, expected.deviation, rtol=1e-10)
