"""A data set as arrays in raw units: checks, train/valid/test splits, standardisation and minibatches.

dataset = datasets.load("boston") or tables.read_table("mine.csv", target="price")
splits = make_splits(dataset, split=0, seed=0)
x_scale = Standardizer.fit(splits.train.X)          # from the training part only
rows = batch_indices(seed, step, len(splits.train.X), 1000)
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiment.data.batches import Indices, batch_indices
from experiment.seeds import Seeds, numpy_rng

if TYPE_CHECKING:
    from experiment.data.tables import TableSchema

__all__ = [
    "Dataset",
    "Indices",
    "Part",
    "Rows",
    "Splits",
    "Standardizer",
    "Task",
    "batch_indices",
    "check_finite",
    "divide",
    "make_splits",
]

Task = Literal["regression", "binary", "multiclass"]

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


def make_splits(dataset: Dataset, *, split: int, valid_fraction: float = 0.1, seed: int) -> Splits:
    """As :func:`divide`, for a `Dataset`; `valid` is None if there is none."""
    numbers = split_numbers(dataset.name, len(dataset.X), dataset.splits, split, valid_fraction, seed)
    parts = {part: rows_of(dataset.X, dataset.Y, rows) for part, rows in numbers.items()}
    return Splits(
        train=parts["train"],
        valid=parts.get("valid"),
        test=parts["test"],
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


def check_finite(array: NDArray[Any], names: Sequence[str], what: str) -> None:
    """Raise ValueError, naming column, count and first row, if `array` [N, D] holds NaN or infinite values."""
    for d in range(array.shape[1]):
        bad = ~np.isfinite(array[:, d])
        if bad.any():
            raise ValueError(
                f"{what} must be finite, but column {names[d]!r} has {int(bad.sum())} NaN or infinite values, the "
                f"first in row {int(bad.argmax())} (from 0); drop those rows or put in values."
            )


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
