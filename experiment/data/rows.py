"""Rows of a data set in named parts: the one type that every reader returns and every script starts from.

    data = views.load(Source(dataset="boston"), "supervised")
    data.train.X, data.test.Y, data.sizes
    data.some("train", 10_000, Seeds(0))                # the rows that are looked at during training
    views.load(Source(dataset="wine"), "supervised", split=None).folds(8)

A reader of rows that are not divided returns them in one part "all", which :func:`divide` cuts.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiment.seeds import Seeds, numpy_rng

if TYPE_CHECKING:
    from experiment.data.tables import TableSchema

__all__ = [
    "Indices",
    "Part",
    "Rows",
    "Task",
    "check_finite",
    "divide",
    "undivided",
]

Task = Literal["regression", "binary", "multiclass"]

Indices = NDArray[np.int64]
"""Numbers of rows."""

_HASH_ROWS = 65_536


class Part(NamedTuple):
    """Some rows: inputs [n, ...], dense or CSR, and targets [n, P] or None. May share memory with the data set."""

    X: Any
    Y: Any = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a data set in named parts, in the units of their view; what every reader returns.

    :param name: short name for reports.
    :param parts: "train", "test", and "valid" unless none was asked for; or one part "all" that is not divided yet.
    :param task: "regression", "binary", "multiclass", or "density", where Y is None or the class of each row, to look
        at. Labels are int64 [n, 1] from 0 to C - 1, targets of a regression float64 [n, P].
    :param source: where the data come from, and what was done to them.
    :param sha256: checksum of all parts: the same whichever file format they were read from.
    :param image_shape: height and width, if a row is an image, row by row.
    :param feature_names: names of the D inputs.
    :param target_names: names of the P targets.
    :param class_names: the label of each class as in the source; () for regression.
    :param schema: how a table's columns became X and Y; None if X holds the source's own numbers.
    :param splits: of a part "all": the standard splits as pairs of row numbers (train, test), or None.
    :param is_shuffled: the order of the rows is a random one already, so that blocks of rows may be folds.
    """

    name: str
    parts: Mapping[str, Part]
    task: Task | Literal["density"]
    source: str
    sha256: str
    image_shape: tuple[int, int] | None = None
    feature_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    schema: "TableSchema | None" = None
    splits: tuple[tuple[Indices, Indices], ...] | None = None
    is_shuffled: bool = False

    @property
    def train(self) -> Part:
        """The rows to learn from."""
        return self._part("train")

    @property
    def valid(self) -> Part:
        """The rows to choose by."""
        return self._part("valid")

    @property
    def test(self) -> Part:
        """The rows to report."""
        return self._part("test")

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each part."""
        return {name: part.X.shape[0] for name, part in self.parts.items()}

    def some(self, part: str, limit: int | None, seeds: Seeds, purpose: str = "eval") -> Part:
        """At most `limit` rows of a part, drawn at random without replacement, in their order; all of them if None.

        :param seeds: of the run; the rows are drawn by its stream "{purpose}/{part}", so they are always the same.
        :raises ValueError: if there is no such part, or `limit` is not positive.
        """
        X, Y = chosen = self._part(part)
        if limit is not None and limit < 1:
            raise ValueError(f"the number of {part} rows to draw must be positive, got {limit}; None takes all.")
        if limit is None or X.shape[0] <= limit:
            return chosen
        rows = np.sort(seeds.rng(f"{purpose}/{part}").choice(X.shape[0], limit, replace=False))
        return Part(X[rows], None if Y is None else Y[rows])

    def folds(self, count: int) -> tuple[tuple[Indices, Indices], ...]:
        """Pairs (train, test) of row numbers of the part "all" for cross-validation.

        The standard splits, if there are any, whatever `count` is. Else the test rows are `count` blocks, one after the
        other, of the rows in random order: in their own where `is_shuffled`, else by the stream "folds/N" of seed 0.

        :raises ValueError: if `count` is not from 2 to the number of rows.
        """
        if self.splits is not None:
            return self.splits
        num_data = self._part("all").X.shape[0]
        if not 2 <= count <= num_data:
            raise ValueError(f"the number of folds must be from 2 to {num_data}, the number of rows, got {count}.")
        order = np.arange(num_data) if self.is_shuffled else numpy_rng(0, f"folds/{num_data}").permutation(num_data)
        blocks = np.array_split(np.arange(num_data), count)
        return tuple((np.delete(order, block), order[block]) for block in blocks)

    def _part(self, name: str) -> Part:
        if name not in self.parts:
            raise ValueError(f"{self.name!r} must have a part {name!r}, got {', '.join(self.parts)}; divide it so.")
        return self.parts[name]


def undivided(
    name: str,
    X: Any,
    Y: Any,
    task: Task,
    *,
    source: str,
    feature_names: Sequence[str] = (),
    target_names: Sequence[str] = (),
    class_names: Sequence[str] = (),
    splits: Sequence[tuple[Indices, Indices]] | None = None,
    schema: "TableSchema | None" = None,
) -> Rows:
    """Inputs and targets as a data set of one part "all", checked, in the units of their source.

    The arrays are kept in float64: 8 N (D + P) bytes, for example 2.7 GB for HIGGS.

    :param X: numbers [N, D].
    :param Y: targets [N, P] of a regression, or labels 0, ..., C-1 [N, 1], where C is the number of `class_names`.
    :param feature_names: D names; () stands for "x0", "x1", ...
    :param target_names: P names; () stands for "y", or "y0", "y1", ...
    :param splits: the standard splits as pairs of row numbers (train, test), or None if there are none.
    :raises ValueError: naming the first thing wrong: shapes, types, fewer than 2 rows, values that are NaN or
        infinite, a constant target, labels coded in another way, or splits that name a row twice or none.
    """
    what = f"data set {name!r}"
    X = _numbers(X, f"X of {what}").astype(np.float64, copy=False)
    Y = _numbers(Y, f"Y of {what}")
    if len(X) != len(Y):
        raise ValueError(f"X and Y of {what} must have as many rows, got {len(X)} and {len(Y)}; align them.")
    if len(X) < 2:
        raise ValueError(f"{what} must have at least 2 rows, got {len(X)}; check that the file is complete.")
    names = tuple(feature_names) or tuple(f"x{d}" for d in range(X.shape[1]))
    targets = tuple(target_names) or (("y",) if Y.shape[1] == 1 else tuple(f"y{p}" for p in range(Y.shape[1])))
    if len(names) != X.shape[1] or len(targets) != Y.shape[1]:
        raise ValueError(
            f"{what} must have one name for each of {X.shape[1]} features and {Y.shape[1]} targets, got {len(names)} "
            f"and {len(targets)} names."
        )
    check_finite(X, names, f"X of {what}")
    check_finite(Y, targets, f"Y of {what}")
    Y = _checked_targets(Y, task, len(class_names), what)
    pairs = None if splits is None else tuple(splits)
    for number, pair in enumerate(pairs or ()):
        _check_split(pair, len(X), f"split {number} of {what}")
    return Rows(
        name,
        {"all": Part(X, Y)},
        task,
        source,
        _sha256(X, Y, task, pairs or ()),
        feature_names=names,
        target_names=targets,
        class_names=tuple(class_names),
        schema=schema,
        splits=pairs,
    )


def divide(data: Rows, *, split: int = 0, valid_fraction: float = 0.1, seed: int = 0) -> Rows:
    """Cut a data set of one part "all" into "train", "test" and, unless `valid_fraction` is 0, "valid".

    :param split: number of the standard split where `data.splits` exists; else any number from 0, which names a random
        split into 90 % training and 10 % test rows: a pure function of N and `split`, not of `seed`.
    :param valid_fraction: part of the training rows, in [0, 1), that is set aside at random for validation. Training,
        validation and random test rows keep the order they have in the data set.
    :param seed: decides, with `split`, which rows are set aside for validation.
    :raises ValueError: if `split` is out of range, `valid_fraction` is not in [0, 1), or a part would be left empty.
    """
    X, Y = data.parts["all"]
    numbers = split_numbers(data.name, X.shape[0], data.splits, split, valid_fraction, seed)
    return replace(data, parts={part: rows_of(X, Y, rows) for part, rows in numbers.items()}, splits=None)


def split_numbers(
    name: str,
    num_data: int,
    splits: Sequence[tuple[Indices, Indices]] | None,
    split: int,
    valid_fraction: float,
    seed: int,
) -> dict[str, Indices]:
    """Row numbers of the parts "train", "valid" (unless the fraction is 0) and "test"; see :func:`divide`."""
    what = f"data set {name!r}"
    if splits is not None and not 0 <= split < len(splits):
        raise ValueError(f"--split must be from 0 to {len(splits) - 1} for {what}, got {split}.")
    if split < 0:
        raise ValueError(f"--split must not be negative, got {split}.")
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"the validation fraction must be in [0, 1), got {valid_fraction}; 0 means no validation.")
    if splits is not None:
        train, test = splits[split]
    else:
        num_train = min(round(0.9 * num_data), num_data - 1)
        order = numpy_rng(0, f"split/{split}").permutation(num_data)
        train, test = np.sort(order[:num_train]), np.sort(order[num_train:])
    if valid_fraction == 0:
        return {"train": train, "test": test}
    num_valid = max(1, round(valid_fraction * len(train)))
    if num_valid >= len(train):
        raise ValueError(
            f"{what} has {len(train)} training rows, too few to set aside {num_valid} for validation; give more "
            "rows, or a validation fraction of 0."
        )
    is_valid = np.zeros(len(train), dtype=bool)
    is_valid[numpy_rng(seed, f"valid/{split}").choice(len(train), num_valid, replace=False)] = True
    return {"train": train[~is_valid], "valid": train[is_valid], "test": test}


def check_finite(array: NDArray[Any], names: Sequence[str], what: str) -> None:
    """Raise ValueError, naming column, count and first row, if `array` [N, D] holds NaN or infinite values."""
    for d in range(array.shape[1]):
        bad = ~np.isfinite(array[:, d])
        if bad.any():
            raise ValueError(
                f"{what} must be finite, but column {names[d]!r} has {int(bad.sum())} NaN or infinite values, the "
                f"first in row {int(bad.argmax())} (from 0); drop those rows or put in values."
            )


def _sha256(X: NDArray[Any], Y: NDArray[Any], task: str, splits: Sequence[tuple[Indices, Indices]]) -> str:
    """Checksum of X, Y and the standard splits: the same whichever file format they were read from."""
    digest = hashlib.sha256(f"{task} {X.shape} {Y.shape}".encode())
    for array in (X, Y.astype("<f8"), *(np.asarray(rows) for pair in splits for rows in pair)):
        kind = "<f8" if array.dtype.kind == "f" else "<i8"
        for start in range(0, len(array), _HASH_ROWS):
            digest.update(np.ascontiguousarray(array[start : start + _HASH_ROWS], dtype=kind).tobytes())
    return digest.hexdigest()


def _numbers(values: Any, what: str) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} must hold real numbers, got type {array.dtype}; encode text and dates as numbers.")
    if array.ndim != 2 or array.shape[1] < 1:
        raise ValueError(f"{what} must be a matrix [rows, columns], got shape {array.shape}; reshape it.")
    return array


def _checked_targets(Y: NDArray[Any], task: str, num_classes: int, what: str) -> NDArray[Any]:
    if task == "regression":
        constant = np.flatnonzero(np.all(Y[0] == Y, axis=0))
        if len(constant):
            raise ValueError(
                f"the target of {what} must vary, but column {constant[0]} of Y is {Y[0, constant[0]]} in every row; "
                "choose another target."
            )
        return Y.astype(np.float64, copy=False)
    if task not in ("binary", "multiclass"):
        raise ValueError(f"the task of {what} must be 'regression', 'binary' or 'multiclass', got {task!r}.")
    if Y.shape[1] != 1:
        raise ValueError(f"labels of {what} must have shape [N, 1], got {Y.shape}; one-hot labels: take the argmax.")
    if num_classes < 2 or (task == "binary" and num_classes != 2):
        wanted = "2" if task == "binary" else "at least 2"
        raise ValueError(f"{task} {what} must have {wanted} class names, got {num_classes}.")
    found = np.unique(Y)
    if not np.isin(found, np.arange(num_classes)).all():
        raise ValueError(
            f"labels of {what} must be the integers 0 to {num_classes - 1}, got values from {found[0]} to {found[-1]} "
            f"({len(found)} different ones); recode them, for example -1 and 1 as 0 and 1."
        )
    if len(found) < 2:
        raise ValueError(f"the target of {what} must vary, but every label is {found[0]}; choose another target.")
    return Y.astype(np.int64, copy=False)


def _check_split(pair: tuple[Indices, Indices], num_data: int, what: str) -> None:
    seen = np.zeros(num_data, dtype=bool)
    for name, rows in zip(("training", "test"), map(np.asarray, pair), strict=True):
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or len(rows) == 0:
            raise ValueError(f"the {name} rows of {what} must be a list of integers, got {rows.dtype} {rows.shape}.")
        if rows.min() < 0 or rows.max() >= num_data:
            raise ValueError(f"the {name} rows of {what} must be from 0 to {num_data - 1}, got {rows.max()}.")
        if seen[rows].any() or len(np.unique(rows)) < len(rows):
            raise ValueError(f"{what} must name each row at most once, but its {name} rows repeat one; check the file.")
        seen[rows] = True


def rows_of(X: Any, Y: Any, rows: Indices) -> Part:
    """Some rows of both; a block of rows shares their memory."""
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows) and (np.diff(rows) == 1).all():
        return Part(X[first : last + 1], Y[first : last + 1])
    return Part(X[rows], Y[rows])
