"""A data set as arrays in raw units: checks, train/valid/test splits, standardisation and minibatches.

dataset = datasets.load("boston") or tables.read_table("mine.csv", target="price")
splits = make_splits(dataset, split=0, seed=0)
x_scale = Standardizer.fit(splits.train.X)          # from the training part only
rows = batch_indices(seed, step, len(splits.train.X), 1000)
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiment.seeds import numpy_rng

if TYPE_CHECKING:
    from experiment.data.tables import TableSchema

__all__ = ["Dataset", "Part", "Splits", "Standardizer", "Task", "batch_indices", "check_finite", "make_splits"]

Task = Literal["regression", "binary", "multiclass"]
Indices = NDArray[np.int64]

_HASH_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs and targets of one data set in the units of its source; the constructor checks them.

    The arrays are kept in float64: 8 N (D + P) bytes, for example 2.5 GB for HIGGS.

    :param name: short name for reports.
    :param X: float64 inputs of shape [N, D].
    :param Y: for regression float64 targets [N, P]; for binary integer labels 0 and 1 [N, 1]; for multiclass integer
        labels 0, ..., C-1 [N, 1], where C is the number of `class_names`.
    :param task: "regression", "binary" or "multiclass".
    :param feature_names: D names; () stands for "x0", "x1", ...
    :param target_name: name of the target; several are joined by ", ".
    :param class_names: for classification the label of each class as in the source; () for regression.
    :param source: where the data come from and what was done to them.
    :param splits: the standard splits as pairs of row numbers (train, test), or None if there are none.
    :param schema: how a table's columns became `X` and `Y`; None if `X` holds the source's own numbers.
    :raises ValueError: naming the first thing wrong: shapes, types, fewer than 2 rows, values that are NaN or
        infinite, a constant target, labels coded in another way, or splits that name a row twice or none.
    """

    name: str
    X: NDArray[np.float64]
    Y: NDArray[Any]
    task: Task
    feature_names: tuple[str, ...] = ()
    target_name: str = "y"
    class_names: tuple[str, ...] = ()
    source: str = ""
    splits: tuple[tuple[Indices, Indices], ...] | None = None
    schema: "TableSchema | None" = None

    def __post_init__(self) -> None:
        what = f"data set {self.name!r}"
        X = _numbers(self.X, f"X of {what}").astype(np.float64, copy=False)
        Y = _numbers(self.Y, f"Y of {what}")
        if len(X) != len(Y):
            raise ValueError(f"X and Y of {what} must have as many rows, got {len(X)} and {len(Y)}; align them.")
        if len(X) < 2:
            raise ValueError(f"{what} must have at least 2 rows, got {len(X)}; check that the file is complete.")
        names = tuple(self.feature_names) or tuple(f"x{d}" for d in range(X.shape[1]))
        if len(names) != X.shape[1]:
            raise ValueError(f"{what} must have one name for each of {X.shape[1]} features, got {len(names)} names.")
        check_finite(X, names, f"X of {what}")
        check_finite(Y, [self.target_name] * Y.shape[1], f"Y of {what}")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "feature_names", names)
        object.__setattr__(self, "Y", _checked_targets(Y, self.task, len(self.class_names), what))
        for number, pair in enumerate(self.splits or ()):
            _check_split(pair, len(X), f"split {number} of {what}")

    @functools.cached_property
    def sha256(self) -> str:
        """Checksum of X, Y and the standard splits: the same whichever file format they were read from."""
        digest = hashlib.sha256(f"{self.task} {self.X.shape} {self.Y.shape}".encode())
        arrays = [self.X, self.Y.astype("<f8"), *(np.asarray(i) for pair in self.splits or () for i in pair)]
        for array in arrays:
            kind = "<f8" if array.dtype.kind == "f" else "<i8"
            for start in range(0, len(array), _HASH_ROWS):
                digest.update(np.ascontiguousarray(array[start : start + _HASH_ROWS], dtype=kind).tobytes())
        return digest.hexdigest()


class Part(NamedTuple):
    """Some rows of a data set, in raw units: inputs [n, D] and targets [n, P]. May share memory with the data set."""

    X: NDArray[np.float64]
    Y: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Splits:
    """Training, validation and test part of a data set, with what reports need to know of it.

    `valid` is None if no validation part was asked for. The fields after `test` are those of :class:`Dataset`, and
    `split` is the number of the split.
    """

    train: Part
    valid: Part | None
    test: Part
    name: str
    task: Task
    feature_names: tuple[str, ...]
    target_name: str
    class_names: tuple[str, ...]
    source: str
    sha256: str
    schema: "TableSchema | None"
    split: int


def make_splits(dataset: Dataset, *, split: int, valid_fraction: float = 0.1, seed: int) -> Splits:
    """Cut a data set into training, validation and test part.

    :param split: number of the standard split where `dataset.splits` exists; else any number from 0, which names a
        random split into 90% training and 10% test rows: a pure function of N and `split`, not of `seed`.
    :param valid_fraction: part of the training rows, in [0, 1), that is set aside at random for validation; 0 gives
        `valid` None. Training, validation and random test rows keep the order they have in the data set.
    :param seed: decides, with `split`, which rows are set aside for validation.
    :raises ValueError: if `split` is out of range, `valid_fraction` is not in [0, 1), or a part would be left empty.
    """
    what = f"data set {dataset.name!r}"
    if dataset.splits is not None and not 0 <= split < len(dataset.splits):
        raise ValueError(f"--split must be from 0 to {len(dataset.splits) - 1} for {what}, got {split}.")
    if split < 0:
        raise ValueError(f"--split must not be negative, got {split}.")
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"the validation fraction must be in [0, 1), got {valid_fraction}; 0 means no validation.")
    if dataset.splits is not None:
        train, test = dataset.splits[split]
    else:
        num_data = len(dataset.X)
        num_train = min(round(0.9 * num_data), num_data - 1)
        order = numpy_rng(0, f"split/{split}").permutation(num_data)
        train, test = np.sort(order[:num_train]), np.sort(order[num_train:])
    valid = None
    if valid_fraction > 0:
        num_valid = max(1, round(valid_fraction * len(train)))
        if num_valid >= len(train):
            raise ValueError(
                f"{what} has {len(train)} training rows, too few to set aside {num_valid} for validation; give more "
                "rows, or a validation fraction of 0."
            )
        is_valid = np.zeros(len(train), dtype=bool)
        chosen = numpy_rng(seed, f"valid/{split}").choice(len(train), num_valid, replace=False)
        is_valid[chosen] = True
        train, valid = train[~is_valid], train[is_valid]
    return Splits(
        train=_part(dataset, train),
        valid=None if valid is None else _part(dataset, valid),
        test=_part(dataset, test),
        name=dataset.name,
        task=dataset.task,
        feature_names=dataset.feature_names,
        target_name=dataset.target_name,
        class_names=dataset.class_names,
        source=dataset.source,
        sha256=dataset.sha256,
        schema=dataset.schema,
        split=split,
    )


@dataclass(frozen=True, eq=False)
class Standardizer:
    """The map x -> (x - mean) / scale of each column, and back.

    :param mean: [D], in the units of the data.
    :param scale: [D], positive; a variance in standardised units is multiplied by scale^2 to get back.
    :param constant_columns: numbers of the columns that did not vary in the fitted array; their scale is 1.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    constant_columns: tuple[int, ...] = ()

    @classmethod
    def fit(cls, array: NDArray[Any]) -> "Standardizer":
        """Mean and standard deviation (divisor n) of each column of `array` [n, D]: give the training part only.

        :raises ValueError: if `array` is not a matrix with rows, or its values are not finite or overflow.
        """
        array = _numbers(array, "the array to standardise")
        if len(array) == 0:
            raise ValueError("the array to standardise must have rows, got none; give the training part.")
        check_finite(array, [str(d) for d in range(array.shape[1])], "the array to standardise")
        mean, scale, constant = np.empty(array.shape[1]), np.ones(array.shape[1]), []
        for d in range(array.shape[1]):  # by column, so that no copy of a large array is made
            column = array[:, d].astype(np.float64, copy=False)
            with np.errstate(over="ignore", invalid="ignore"):
                mean[d], deviation = column.mean(), column.std()
            if not np.isfinite(deviation):
                raise ValueError(f"column {d} has values up to {np.abs(column).max():.3g}, too large; rescale it.")
            if deviation <= 4 * np.finfo(np.float64).eps * np.abs(column).max():  # no more than rounding
                mean[d], deviation = column[0], 1.0
                constant.append(d)
            scale[d] = deviation
        return cls(mean, scale, tuple(constant))

    @classmethod
    def identity(cls, num_columns: int) -> "Standardizer":
        """The map that changes nothing, for columns that are in good units already (pixels, say)."""
        return cls(np.zeros(num_columns), np.ones(num_columns))

    def transform(self, array: NDArray[Any]) -> NDArray[np.float64]:
        """Raw units [..., D] to standardised units [..., D]."""
        return np.asarray((self._checked(array) - self.mean) / self.scale)

    def inverse_transform(self, array: NDArray[Any]) -> NDArray[np.float64]:
        """Standardised units [..., D] to raw units [..., D]."""
        return np.asarray(self._checked(array) * self.scale + self.mean)

    def to_json(self) -> dict[str, Any]:
        """A dictionary for `experiment.run_dir.write_json`; exact, as Python writes floats in full."""
        return {
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "constant_columns": list(self.constant_columns),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Standardizer":
        """The inverse of :meth:`to_json`.

        :raises ValueError: if entries are missing or do not fit each other.
        """
        try:
            mean, scale = (np.array(stored[key], dtype=np.float64) for key in ("mean", "scale"))
            constant = tuple(int(d) for d in stored["constant_columns"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the stored standardisation is damaged ({error!r}); take an undamaged copy.") from error
        if mean.ndim != 1 or mean.shape != scale.shape or not np.all(scale > 0):
            raise ValueError("the stored standardisation needs as many means as positive scales; take another copy.")
        return cls(mean, scale, constant)

    def _checked(self, array: NDArray[Any]) -> NDArray[Any]:
        array = np.asarray(array)
        if array.ndim == 0 or array.shape[-1] != len(self.mean):
            raise ValueError(
                f"the array must have {len(self.mean)} columns as the fitted one, got shape {array.shape}."
            )
        return array


def batch_indices(seed: int, step: int, num_data: int, batch_size: int) -> Indices:
    """Row numbers of the minibatch of a step: a pure function of the arguments, so that training can be resumed.

    The batches are cut one after the other from an endless row of random permutations of the N rows. So each row is
    used once in N draws, and each batch has `batch_size` rows: one that reaches the end of a permutation is completed
    from the next (only in such a batch can a row occur twice). The current permutations are kept, so a step is cheap.

    :param seed: integer seed of the run.
    :param step: number of the step, from 0.
    :return: int64 [batch_size], to be read only; all N rows in order if `batch_size` >= N.
    :raises ValueError: if `step` is negative, or `num_data` or `batch_size` is not positive.
    """
    if step < 0 or num_data < 1 or batch_size < 1:
        raise ValueError(
            f"a batch needs step >= 0, num_data >= 1 and batch_size >= 1, got {step}, {num_data} and {batch_size}."
        )
    if batch_size >= num_data:
        return np.arange(num_data)
    epoch, start = divmod(int(step) * int(batch_size), int(num_data))
    head = _permutation(int(seed), epoch, int(num_data))[start : start + batch_size]
    if len(head) == batch_size:
        return head
    tail = _permutation(int(seed), epoch + 1, int(num_data))[: batch_size - len(head)]
    return np.concatenate([head, tail])


def check_finite(array: NDArray[Any], names: Sequence[str], what: str) -> None:
    """Raise ValueError, naming column, count and first row, if `array` [N, D] holds NaN or infinite values."""
    for d in range(array.shape[1]):
        bad = ~np.isfinite(array[:, d])
        if bad.any():
            raise ValueError(
                f"{what} must be finite, but column {names[d]!r} has {int(bad.sum())} NaN or infinite values, the "
                f"first in row {int(bad.argmax())} (from 0); drop those rows or put in values."
            )


@functools.lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, num_data: int) -> Indices:
    order = numpy_rng(seed, f"batches/{epoch}").permutation(num_data)
    order.flags.writeable = False
    return order


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


def _part(dataset: Dataset, rows: Indices) -> Part:
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 == len(rows) and (np.diff(rows) == 1).all():  # a block of rows needs no copy
        return Part(dataset.X[first : last + 1], dataset.Y[first : last + 1])
    return Part(dataset.X[rows], dataset.Y[rows])
