"""Rows of a data set in named parts: the one type that every reader returns and every script starts from.

    data = views.load(Source(dataset="boston"), "supervised")
    data.train.X, data.test.Y, data.sizes
    data.some("train", 10_000, Seeds(0))                # the rows that are looked at during training
    views.load(Source(dataset="wine"), "supervised", split=None).folds(8)

A reader of rows that are not divided returns them in one part "all", which :func:`divide` cuts.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray

from gpflow_deep_base.seeds import Seeds, numpy_rng
from gpflow_deep_runs.data.table.schema import Schema, Task

__all__ = ["Indices", "Part", "Rows", "Task", "divide", "warn_of_few"]

Indices = NDArray[np.int64]
"""Numbers of rows."""

_HASH_ROWS = 65_536

MIN_TEST_ROWS = 10
"""Scores of fewer rows are warned of."""


class Part(NamedTuple):
    """Some rows: inputs [n, ...], dense or CSR, and targets [n, P] or None. May share memory with the data set."""

    X: Any
    Y: Any = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a data set in named parts, in the units of their view; what every reader returns.

    :param name: short name for reports.
    :param parts: "train", "test", and "valid" unless none was asked for; or one part "all" that is not divided yet,
        whose X is NaN where a value is missing that is to be imputed.
    :param task: "regression", "binary", "multiclass", or "density", where Y is None or the class of each row, to look
        at. Labels are int64 [n, 1] from 0 to C - 1, targets of a regression float64 [n, P].
    :param source: where the data come from, and what was done to them.
    :param checksum: of all parts, the same whichever file format they were read from; "" of a part "all", whose
        :attr:`sha256` is computed where it is asked for.
    :param image_shape: height and width, if a row is an image, row by row, the channels of a pixel together.
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
    checksum: str = ""
    image_shape: tuple[int, int] | None = None
    feature_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    schema: Schema | None = None
    splits: tuple[tuple[Indices, Indices], ...] | None = None
    is_shuffled: bool = False

    @functools.cached_property
    def sha256(self) -> str:
        """Checksum of all parts: of a part "all" that of X, Y and the standard splits."""
        if self.checksum:
            return self.checksum
        # Rows that are not divided yet: what they are of, then their numbers.
        X, Y = self._part("all")
        digest = hashlib.sha256(f"{self.task} {X.shape} {Y.shape}".encode())
        # Numbers of one width and order of bytes, block by block, so that the platform does not matter.
        for array in (X, Y.astype("<f8"), *(np.asarray(rows) for pair in self.splits or () for rows in pair)):
            kind = "<f8" if array.dtype.kind == "f" else "<i8"
            for start in range(0, len(array), _HASH_ROWS):
                digest.update(np.ascontiguousarray(array[start : start + _HASH_ROWS], dtype=kind).reshape(-1).data)
        return digest.hexdigest()

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
        # Each block of the rows in random order is tested once.
        order = np.arange(num_data) if self.is_shuffled else numpy_rng(0, f"folds/{num_data}").permutation(num_data)
        blocks = np.array_split(np.arange(num_data), count)
        return tuple((np.delete(order, block), order[block]) for block in blocks)

    def learned(self, rows: Indices) -> "Rows":
        """The same part "all", and a schema that has learned from training `rows` what to put in for missing values.

        :raises ValueError: if a column has no value in any of them.
        """
        if self.schema is None:
            return self
        return replace(self, schema=self.schema.learned(self._part("all").X[rows], self.name))

    def filled(self, X: Any, X_test: Any) -> tuple[Any, Any]:
        """Training and test rows of a fold; where values are missing, what its training rows say is put in."""
        if self.schema is None:
            return X, X_test
        schema = self.schema.learned(X, self.name)
        return schema.filled(X), schema.filled(X_test)

    def _part(self, name: str) -> Part:
        if name not in self.parts:
            raise ValueError(f"{self.name!r} must have a part {name!r}, got {', '.join(self.parts)}; divide it so.")
        return self.parts[name]


def divide(data: Rows, *, split: int = 0, valid_fraction: float = 0.1, seed: int = 0) -> Rows:
    """Cut a data set of one part "all" into "train", "test" and, unless `valid_fraction` is 0, "valid".

    :param split: number of the standard split where `data.splits` exists; else any number from 0, which names a random
        split into 90 % training and 10 % test rows: a pure function of N and `split`, not of `seed`.
    :param valid_fraction: part of the training rows, in [0, 1), that is set aside at random for validation. Training,
        validation and random test rows keep the order they have in the data set.
    :param seed: decides, with `split`, which rows are set aside for validation.
    :return: where values of a table are missing, its schema says what is put in, learned from the training rows.
    :raises ValueError: if `split` is out of range, `valid_fraction` is not in [0, 1), a part would be left empty, or a
        column has no value in any training row.
    """
    X, Y = data.parts["all"]
    numbers = _split_numbers(data.name, X.shape[0], data.splits, split, valid_fraction, seed)
    parts = {part: _rows_of(X, Y, rows) for part, rows in numbers.items()}
    # What is put in for missing values is learned from the training rows alone.
    schema = data.schema
    if schema is not None:
        schema = schema.learned(parts["train"].X, data.name)
        parts = {name: Part(schema.filled(part.X), part.Y) for name, part in parts.items()}
    return replace(data, parts=parts, checksum=data.sha256, splits=None, schema=schema)


def warn_of_few(data: Rows) -> None:
    """Warn if there are fewer than ten test rows, or rows to be tested in folds."""
    count = data.sizes.get("test", data.sizes.get("all", MIN_TEST_ROWS))
    if count < MIN_TEST_ROWS:
        logging.warning(
            "%s has %d test rows, and scores of so few say little; give more rows, or take the mean of several splits.",
            *(data.name, count),
        )


def _split_numbers(
    name: str,
    num_data: int,
    splits: Sequence[tuple[Indices, Indices]] | None,
    split: int,
    valid_fraction: float,
    seed: int,
) -> dict[str, Indices]:
    """Row numbers of the parts "train", "valid" (unless the fraction is 0) and "test"; see :func:`divide`."""
    subject = f"data set {name!r}"
    if splits is not None and not 0 <= split < len(splits):
        raise ValueError(f"--split must be from 0 to {len(splits) - 1} for {subject}, got {split}.")
    if split < 0:
        raise ValueError(f"--split must not be negative, got {split}.")
    if not 0 <= valid_fraction < 1:
        raise ValueError(f"the validation fraction must be in [0, 1), got {valid_fraction}; 0 means no validation.")
    # A standard split, or 90 % of the rows in an order that is a function of N and the split.
    if splits is not None:
        train, test = splits[split]
    else:
        num_train = min(round(0.9 * num_data), num_data - 1)
        order = numpy_rng(0, f"split/{split}").permutation(num_data)
        train = np.sort(order[:num_train])
        test = np.sort(order[num_train:])
    if valid_fraction == 0:
        return {"train": train, "test": test}
    # Validation rows come out of the training rows.
    num_valid = max(1, round(valid_fraction * len(train)))
    if num_valid >= len(train):
        raise ValueError(
            f"{subject} has {len(train)} training rows, too few to set aside {num_valid} for validation; give more "
            "rows, or a validation fraction of 0."
        )
    is_valid = np.zeros(len(train), dtype=bool)
    is_valid[numpy_rng(seed, f"valid/{split}").choice(len(train), num_valid, replace=False)] = True
    return {"train": train[~is_valid], "valid": train[is_valid], "test": test}


def _rows_of(X: Any, Y: Any, rows: Indices) -> Part:
    """Some rows of both; a block of rows shares their memory."""
    first = int(rows[0])
    last = int(rows[-1])
    # Neighbouring rows are a view.
    if last - first + 1 == len(rows) and (np.diff(rows) == 1).all():
        return Part(X[first : last + 1], Y[first : last + 1])
    return Part(X[rows], Y[rows])
