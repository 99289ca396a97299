#!/usr/bin/env python3
"""What is a density of rows of bits good for: odd rows and missing bits, beside independent columns and neighbours?

    darn_density.py --output=density.json
    darn_density.py --dataset=adult --data_dir=DATA
    darn_density.py --choose

On scikit-learn's digits, 64 bits: densities learn all digits but the eights, and log p(x) tells eights of unseen rows
from the others (AUC). On adult, 123 bits: they learn 3,000 rows, and log p(x) tells unseen rows from others that are
put together from two of them, the first half of the columns of one, the second of another. And they give the
probabilities of bits that are missing, a quarter of all at random (log loss in nats a bit). Densities are `DARNDensity`
with stochastic units, and a MADE without any. Beside them: independent columns, and the ten nearest neighbours (their
distance; the mean of their missing bits, with half a row of each value added). Each split is another draw of training
rows, unseen rows, missing bits and initial weights; ± is the standard error over splits.
"""

import os
import time
import warnings
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import bench
import numpy as np
from absl import flags
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from darn import DARN, DARNDensity

ODD = 8
NEIGHBOURS = 10
SHARE = 0.25
# of adult
TRAIN_ROWS = 3000
UNSEEN_ROWS = 1000
NAMES = ("DARN", "MADE", "independent columns", "ten neighbours")


class Split(NamedTuple):
    """Rows to learn from; unseen rows, and which of them are odd."""

    train: NDArray
    test: NDArray
    is_odd: NDArray


def define_flags(fv: flags.FlagValues) -> None:
    flags.DEFINE_enum("dataset", "digits", ["digits", "adult"], "Rows of bits.", flag_values=fv)
    flags.DEFINE_string("data_dir", None, "Folder of the data set adult.", flag_values=fv)
    flags.DEFINE_integer("splits", 3, "Splits of the rows.", 1, flag_values=fv)
    flags.DEFINE_boolean("choose", False, "Let validation rows choose the architecture.", flag_values=fv)
    flags.DEFINE_integer("rows", 300, "Unseen rows with missing bits; at most all.", 1, flag_values=fv)
    bench.define_common(fv, threads=1)


def main(FLAGS: flags.FlagValues) -> None:
    splits = [scores(split(FLAGS.dataset, FLAGS.data_dir, i), i, FLAGS.choose, FLAGS.rows) for i in range(FLAGS.splits)]
    bench.print_titles("", *NAMES)
    for name in splits[0]:
        numbers = np.array([row[name] for row in splits])  # [splits, densities]
        bench.print_markdown([name, *map(bench.mean_and_error, numbers.T)])
    bench.keep({"columns": NAMES, "splits": splits}, "by name", seed=0)


def split(dataset: str, data_dir: str | None, number: int) -> Split:
    """A split of a data set."""
    rng = np.random.default_rng(number)
    if dataset == "digits":
        images, labels = load_digits(return_X_y=True)
        train, test, digits, is_of = train_test_split((images >= 8).astype(int), labels, random_state=number)
        return Split(train[digits != ODD], test, is_of == ODD)
    # Odd rows of adult: halves of two rows that do not belong together.
    parts = bench.load(dataset, data_dir, "binary").parts
    train = rng.permutation(parts["train"].X)[:TRAIN_ROWS].astype(int)
    rows = rng.permutation(parts["test"].X)[: 3 * UNSEEN_ROWS].astype(int).reshape(3, UNSEEN_ROWS, -1)
    odd = np.where(np.arange(rows.shape[2]) < rows.shape[2] // 2, rows[1], rows[2])
    return Split(train, np.concatenate([rows[0], odd]), np.repeat([False, True], UNSEEN_ROWS))


def scores(of: Split, seed: int, choose: bool, num_rows: int) -> dict[str, list[float]]:
    """AUC of odd rows and log loss of missing bits, of each of `NAMES`."""
    # The densities, as they are or by a choice.
    rates: dict[str, Any] = {} if choose else {"learning_rate": 1e-3, "weight_decay": 0.0}
    sizes: dict[str, Any] = {} if choose else {"hidden": 16, "units": 100}
    densities = (
        DARNDensity(architecture="darn", **sizes, **rates, random_state=seed),
        DARNDensity((), model={"visible_conditional": "made", "conditional_units": 200}, **rates, random_state=seed),
    )
    mean = (of.train.sum(axis=0) + 0.5) / (len(of.train) + 1)
    usual = of.test[~of.is_odd][:num_rows]
    is_missing = np.random.default_rng(seed).uniform(size=usual.shape) < SHARE
    # Each density scores all unseen rows, and completes the usual ones.
    odd = list[NDArray]()
    filled_in = list[NDArray]()
    for density in densities:
        start = time.process_time()
        model = density.fit(of.train).model_
        seconds = time.process_time() - start
        assert isinstance(model, DARN)
        config = model.config
        odd.append(-density.score_samples(of.test))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            filled_in.append(density.complete(usual, is_missing))
        print(f"{len(of.train)} rows; {config.hidden} and {config.units} units, {seconds:.0f} s of CPU")
        print(
            f"{time.process_time() - start - seconds:.0f} s of CPU to score and complete;", *(w.message for w in caught)
        )
    # The rivals: independent columns, and the nearest rows.
    odd += [-log_p(of.test, mean[None]), distances(of.train, of.test)]
    filled_in += [np.broadcast_to(mean, usual.shape), filled(of.train, usual, is_missing)]
    return {
        "auc": [float(roc_auc_score(of.is_odd, score)) for score in odd],
        "log_loss_nats": [log_loss(usual, p, is_missing) for p in filled_in],
    }


def log_p(x: NDArray, p: NDArray) -> NDArray:
    """log-probability of rows of independent bits, [N], nats."""
    return np.where(x, np.log(p), np.log1p(-p)).sum(axis=1)


def distances(train: NDArray, x: NDArray) -> NDArray:
    """Mean number of different bits to the nearest rows, [N]."""
    different = x @ (1 - train).T + (1 - x) @ train.T
    return np.sort(different, axis=1)[:, :NEIGHBOURS].mean(axis=1)


def filled(train: NDArray, x: NDArray, is_missing: NDArray) -> NDArray:
    """Means of the rows that are nearest by the known bits, [N, n_x]."""
    near = [
        np.argsort(((row != train) & ~mask).sum(axis=1), kind="stable")[:NEIGHBOURS]
        for row, mask in zip(x, is_missing, strict=True)
    ]
    return np.stack([(train[rows].sum(axis=0) + 0.5) / (NEIGHBOURS + 1) for rows in near])


def log_loss(x: NDArray, p: NDArray, is_missing: NDArray) -> float:
    """Mean over the missing bits of -log p, nats; p is kept 1e-3 away from 0 and 1."""
    p = np.clip(p, 1e-3, 1 - 1e-3)
    return float(-np.where(x, np.log(p), np.log1p(-p))[is_missing].mean())


if __name__ == "__main__":
    bench.run(define_flags, main)
