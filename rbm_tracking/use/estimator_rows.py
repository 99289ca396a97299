"""Rows of the estimator: what is in them, probabilities drawn as bits, minibatches, scores; dense or sparse."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.extmath import safe_sparse_dot

from rbm_tracking.model.conditionals import fill_in
from rbm_tracking.model.rbm import RBM
from rbm_tracking.model.units import FAMILIES, FamilyName, Layer
from rbm_tracking.model.visible import Discrete

__all__ = [
    "Matrix",
    "Rows",
    "as_categories",
    "at_temperature",
    "check_groups",
    "check_layer",
    "check_values",
    "checked",
    "drawn",
    "drawn_given",
    "filled",
    "is_numeric",
    "log_probs_unnormalised",
    "minibatches",
    "one_hot",
    "packed",
    "refill",
    "resampled",
]

Matrix: TypeAlias = Any
"""Rows, an array or a CSR matrix of SciPy, which has no types."""

_SCORE_ROWS = 5000
_SHOWN = 5  # levels, in errors
_ROUNDS = 2  # of Gibbs sampling at each new draw of what is absent

_ONE_FAMILY = "visible must name each of the {} columns of X in one family, got {}."
_CATEGORIES = (
    "X must be whole numbers, texts or pandas categories for visible='softmax' without groups, and 0 or 1 in a column "
    "for each level with groups, got {}."
)


def checked(validate: Callable[[], Matrix], X: Matrix, visible: Layer) -> Matrix:
    """The rows that `validate` gives, with messages that name what helps where scikit-learn's cannot know.

    :param validate: scikit-learn's validation of X.
    :param X: rows as the user gave them.
    :param visible: what the visible units are.
    :raises ValueError: if X has missing values, or texts.
    """
    if np.ndim(X) == 1 and len(X) and all(isinstance(row, str) for row in X):
        raise ValueError(
            "X must be [n_samples, n_features], got a list of texts; for a letter in each column give "
            "np.array([list(row) for row in X])."
        )
    # Messages of scikit-learn that know nothing of these units.
    try:
        return validate()
    except ValueError as error:
        if "contains NaN" in str(error):
            raise ValueError(
                "X must have no missing values here, got NaN; fit takes them, and impute(X).values fills them in."
            ) from error
        if "could not convert string" in str(error):
            of_numbers = "X must be numbers, got texts; visible='softmax' takes them as categories."
            raise ValueError(_CATEGORIES.format("texts") if visible == "softmax" else of_numbers) from error
        raise


def is_numeric(visible: Layer) -> bool:
    """Whether rows may hold more than 0, 1 and probabilities."""
    return visible not in ("auto", "bernoulli", "softmax")


def check_layer(visible: Mapping[FamilyName, Any], n_v: int) -> None:
    """Check that columns of several families are named once each.

    :raises ValueError: saying what is wrong.
    """
    if unknown := [name for name in visible if name not in FAMILIES]:
        raise ValueError(f"visible must name families of {', '.join(FAMILIES)}, got {unknown[0]!r}.")
    try:
        named = Counter(int(column) for name in visible for column in _columns_of(visible, name))
    except (TypeError, ValueError):
        raise ValueError(
            "visible must name the columns of each family by their numbers, and of softmax the columns of each "
            f'category, for example {{"gaussian": [0, 1], "softmax": [[2, 3, 4]]}}, got {visible!r}.'
        ) from None
    if missing := set(range(n_v)) - set(named):
        raise ValueError(_ONE_FAMILY.format(n_v, f"column {min(missing)} in none"))
    if wrong := [column for column, count in named.items() if count > 1 or not 0 <= column < n_v]:
        raise ValueError(_ONE_FAMILY.format(n_v, f"{max(wrong)} twice or beyond"))


def _columns_of(visible: Mapping[FamilyName, Any], name: FamilyName) -> list[Any]:
    """The columns of a family; those of softmax are in a list for each category."""
    return list(itertools.chain.from_iterable(visible[name]) if name == "softmax" else visible[name])


def check_groups(groups: object) -> None:
    """Check that groups are None, a number of levels, or the columns of each category.

    :raises ValueError: if they are not.
    """
    if groups is None or isinstance(groups, int | np.integer):
        return
    try:
        _ = [int(column) for group in groups for column in group]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ValueError(
            "groups must be the number of levels of each category, or the columns of each, for example "
            f"[[0, 1, 2], [3, 4]], got {groups!r}."
        ) from None


def check_values(X: Matrix, visible: Layer) -> None:
    """Check that the values are in the range of the units.

    :raises ValueError: saying what to do.
    """
    if not isinstance(visible, str):
        check_layer(visible, X.shape[1])
        if sparse.issparse(X):
            raise ValueError("X must be dense for visible units of several families; X.toarray() makes it so.")
        for name in visible:
            check_values(X[:, _columns_of(visible, name)], name)
        return
    # Each family by its range; of sparse rows the values that are not 0.
    values = np.asarray(X.data if sparse.issparse(X) else X)
    if np.issubdtype(values.dtype, np.floating):
        values = values[np.isfinite(values)]
    if visible in ("gaussian", "drelu") or not values.size:
        return
    if visible == "relu":
        if values.min() < 0:
            raise ValueError(f"X must not be negative for visible='relu', got {values.min():g}; 'drelu' takes it.")
        return
    if visible == "spin":
        if sparse.issparse(X) or (np.abs(values) != 1).any():
            raise ValueError("X must be -1 or 1 everywhere, and dense, for visible='spin'; 2 x - 1 makes it of bits x.")
        return
    if visible == "softmax" and ((values != 0) & (values != 1)).any():
        if sparse.issparse(X):
            raise ValueError("codes of categories must be dense for visible='softmax'; X.toarray() makes them so.")
        raise ValueError(_CATEGORIES.format(f"values from {values.min():g} to {values.max():g}"))
    # Bits, or probabilities of bits.
    if values.min() < 0 or values.max() > 1:
        negative = "Negative values in data: " if values.min() < 0 else ""
        is_spin = (np.abs(values) == 1).all()
        numbers = (
            "a frame is taken with numbers as they are, visible='gaussian' takes standardised ones, visible='softmax' "
            "codes of categories"
        )
        advice = "visible='spin' takes -1 and 1" if is_spin else numbers
        raise ValueError(
            f"{negative}X must be 0 or 1, or probabilities between them, got values from {values.min():g} to "
            f"{values.max():g}; {advice}, and sklearn.preprocessing.Binarizer makes bits of them."
        )


def drawn(rows: Matrix, visible: Layer, rng: np.random.RandomState) -> np.ndarray:
    """Dense rows as the units take them: numbers and signs in float32, bits as uint8; of probabilities between 0 and 1
    bits are drawn.
    """
    if sparse.issparse(rows) and not is_numeric(visible) and (rows.data == rows.data.astype(bool)).all():
        return np.asarray(rows.astype(np.uint8).toarray())
    dense = rows.toarray() if sparse.issparse(rows) else rows
    if is_numeric(visible):
        return np.asarray(dense, np.float32)
    # No number is drawn where all are bits.
    binary = dense.astype(np.uint8)
    if not (binary == dense).all():
        binary = (rng.uniform(size=dense.shape) < dense).astype(np.uint8)
    return np.asarray(binary)


def packed(rows: np.ndarray, count: int) -> np.ndarray:
    """Rows followed by zeros, `count` in all; bits as booleans."""
    padded = np.zeros((count, rows.shape[1]), bool if rows.dtype == np.uint8 else rows.dtype)
    padded[: len(rows)] = rows
    return padded


def minibatches(
    rng: np.random.RandomState, num_rows: int, size: int, weights: np.ndarray | None = None
) -> Iterator[NDArray[np.int64]]:
    """Rows of each minibatch, from one permutation after the other; with weights [N] in proportion to them."""
    everything = np.arange(num_rows)
    rows = np.empty(0, np.int64)
    while True:
        while len(rows) < size:
            more = everything if weights is None else resampled(rng, weights, everything)
            rows = np.concatenate([rows, rng.permutation(more)])
        yield rows[:size]
        rows = rows[size:]


def resampled(rng: np.random.RandomState, weights: np.ndarray, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """As many rows, each as often as its weight among the others asks for, up to less than one."""
    # Systematic resampling: one random number shifts all places at which rows are taken.
    ends = np.cumsum(weights / weights.sum()) * len(rows)
    ends[-1] = len(rows)
    return np.repeat(rows, np.diff(np.floor(ends + rng.uniform()), prepend=0).astype(np.int64))[: len(rows)]


# Entries that are absent.


class Rows(NamedTuple):
    """Rows to train with, their weights [N], and which entries are absent [N, n_v]; None where all are alike, or
    there."""

    X: Matrix
    weights: np.ndarray | None = None
    is_missing: NDArray[np.bool_] | None = None


def filled(
    X: Matrix, groups: Sequence[Sequence[int]], rng: np.random.RandomState
) -> tuple[Matrix, NDArray[np.bool_] | None]:
    """Rows whose NaN are values of other rows, drawn column by column, or category by category; and where they were.

    :param groups: columns of one category, which are absent together.
    :return: rows, dense if they have NaN; None if they have none.
    :raises ValueError: if a column has no value at all, or a part of a category is absent.
    """
    values = X.data if sparse.issparse(X) else X
    if not np.issubdtype(values.dtype, np.floating) or not np.isnan(values).any():
        return X, None
    # Each category, and each other column, from rows that have it.
    X = X.toarray() if sparse.issparse(X) else X.copy()
    is_missing = np.isnan(X)
    alone = set(range(X.shape[1])) - {column for group in groups for column in group}
    for group in (*groups, *((column,) for column in sorted(alone))):
        columns = np.array(group)
        absent = is_missing[:, columns].any(axis=1)
        if absent.all():
            raise ValueError(f"column {columns[0]} of X is NaN in every row; leave it out.")
        if (is_missing[:, columns].any(axis=1) != is_missing[:, columns].all(axis=1)).any():
            raise ValueError(f"columns {list(group)} are one category, of which all or none must be NaN in a row.")
        rows = np.flatnonzero(absent)
        X[np.ix_(rows, columns)] = X[np.ix_(rng.choice(np.flatnonzero(~absent), len(rows)), columns)]
    return X, is_missing


def refill(rows: Rows, chosen: NDArray[np.int64], rbm: RBM, rng: np.random.RandomState) -> None:
    """Draw what is absent in the chosen rows anew given what is there, in place."""
    assert rows.is_missing is not None
    # Only rows that have gaps.
    index = np.unique(chosen)
    index = index[rows.is_missing[index].any(axis=1)]
    numpy_rng = np.random.default_rng(rng.randint(2**31 - 1))
    rows.X[index] = fill_in(rbm, rows.X[index], rows.is_missing[index], rng=numpy_rng, num_steps=_ROUNDS)


# Categories as they come.


def as_categories(X: ArrayLike) -> OneHotEncoder | None:
    """The levels of the columns of X, fitted, if they are categories as they come: texts, codes, or those of pandas.

    None for zeros and ones, which are a column for each level already, and for numbers that are no codes.
    """
    if sparse.issparse(X):
        return None
    values = np.asarray(X)
    if values.ndim != 2 or not values.size:
        return None
    if values.dtype.kind in "biuf":
        there = values[~np.isnan(values)] if values.dtype.kind == "f" else values
        if not np.isfinite(there).all() or (there != np.round(there)).any() or np.isin(there, (0, 1)).all():
            return None
    # Levels of each column in their order, without what is absent.
    is_absent = _is_absent(values)
    levels = []
    for column in range(values.shape[1]):
        there = values[~is_absent[:, column], column]
        if not len(there):
            raise ValueError(f"column {column} of X has no value in any row; leave it out.")
        levels.append(np.array(sorted(set(there.tolist())), values.dtype))
    return OneHotEncoder(categories=levels, sparse_output=False, dtype=np.float32).fit(
        np.array([level[:1] for level in levels], values.dtype).T
    )


def one_hot(encoder: OneHotEncoder, X: ArrayLike) -> NDArray[np.float32]:
    """A column for each level, NaN in all of those of a category that is absent.

    :raises ValueError: if X has another number of columns, or levels that were not there before.
    """
    # What is absent is any level for now, so that the encoder takes it.
    values = np.asarray(X)
    is_absent = _is_absent(values)
    if values.ndim == 2 and values.shape[1] == len(encoder.categories_):
        first_levels = np.array([level[0] for level in encoder.categories_], encoder.categories_[0].dtype)
        values = np.where(is_absent, first_levels, values)
        for column, known in enumerate(encoder.categories_):
            if new := set(values[:, column].tolist()) - set(known.tolist()):
                raise ValueError(
                    f"column {column} of X must hold levels that fit has seen, {', '.join(map(str, known[:_SHOWN]))}"
                    f"{', ...' * (len(known) > _SHOWN)}, got {sorted(new, key=str)[0]!r}; leave such rows out."
                )
    levels = np.asarray(encoder.transform(values), np.float32)
    sizes = [len(level) for level in encoder.categories_]
    levels[np.repeat(is_absent, sizes, axis=1)] = np.nan
    return levels


def _is_absent(values: np.ndarray) -> NDArray[np.bool_]:
    """Where there is no value: NaN, None and the missing value of pandas, none of which equals itself, or None."""
    if values.dtype.kind == "O":
        texts = [
            [value is None or value is not value or str(value) in ("nan", "<NA>") for value in row] for row in values
        ]
        return np.array(texts, bool)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)


# Other distributions.


def at_temperature(rbm: RBM, temperature: float) -> RBM:
    """The RBM whose energies, those of the measures of its units among them, are divided by the temperature."""
    W, b, c = (part / temperature for part in rbm[:3])
    return RBM(W, b, c, rbm.visible.powered(1 / temperature), rbm.hidden.powered(1 / temperature))


def drawn_given(rbm: RBM, given: ArrayLike, n_samples: int, num_steps: int, rng: np.random.Generator) -> np.ndarray:
    """Rows [n_samples, n_v] whose units that are not NaN in `given` [n_v] stay so, by chains of their own.

    :raises ValueError: if `given` has another shape, or the units cannot be so.
    """
    row = np.asarray(given, np.float64)
    n_v = int(rbm.b.shape[0])
    if row.shape != (n_v,):
        raise ValueError(f"given must be [{n_v}], one value or NaN for each unit, got shape {row.shape}.")
    # A start by the visible biases alone, then rounds in which the given units stay.
    is_missing = np.broadcast_to(np.isnan(row), (n_samples, n_v))
    noise = rng.random((n_samples, rbm.visible.num_noise(n_v)))
    field = np.broadcast_to(np.asarray(rbm.b, np.float64), (n_samples, n_v))
    start = np.where(is_missing, rbm.visible.draw(field, noise), row)
    drawn_rows = fill_in(rbm, start, is_missing, rng=rng, num_steps=max(1, num_steps))
    rbm.visible.check(drawn_rows, name="given with what was drawn")
    return rbm.visible.stored(drawn_rows)


def log_probs_unnormalised(rbm: RBM, X: Matrix) -> NDArray[np.float64]:
    """log q~(x) of each row, dense or sparse, in float64, nats, [N]."""
    W, b, c = (np.asarray(part, np.float64) for part in (rbm.W, rbm.b, rbm.c))
    # Blocks of rows, dense or sparse; the measure of bits is 1.
    parts = []
    hidden = rbm.hidden
    is_measured = not isinstance(rbm.visible, Discrete)
    for start in range(0, X.shape[0], _SCORE_ROWS):
        v = X[start : start + _SCORE_ROWS].astype(np.float64)
        a = safe_sparse_dot(v, W.T) + c
        measure = rbm.visible.log_measure(v.toarray() if sparse.issparse(v) else v) if is_measured else 0.0
        parts.append(safe_sparse_dot(v, b) + hidden.log_normaliser(a) + measure)
    return np.concatenate(parts)
